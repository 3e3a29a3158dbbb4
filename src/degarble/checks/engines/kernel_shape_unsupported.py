"""ENG704: layers that a kernel does not take, because of their shape, width or group size."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from degarble.engines.kernels import KernelLimit, kernel_limits
from degarble.engines.parallel import Role, role_of
from degarble.evidence.modules import Modules
from degarble.evidence.store import Settings
from degarble.evidence.stored_facts import format_tag
from degarble.finding import Finding, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

STOPS = "loading stops"
"""In a limit's text: what separates a slow layer from no service at all."""


class Misfit(msgspec.Struct, frozen=True, kw_only=True):
    """One class of modules that one kernel does not take."""

    kernel: KernelLimit
    example: StoredModule
    members: list[StoredModule]
    reason: str


@check("ENG704", severity=Severity.INFO, symptom_of=("QNT104", "QNT105", "QNT116"))
def kernel_shape_unsupported(modules: Modules, settings: Settings) -> Iterator[Finding]:
    """A fast kernel does not take some layers, because of their shape, bit width or group size.

    ## What it looks for
    Every quantised linear, divided by `--tp` where given, against the limits of the kernels that run its format: tile
    multiples along inputs and outputs, supported widths and group sizes. An info; with `--engine` a warning where that
    engine would stop loading.

    ## Why output turns to garbage
    It rarely does by itself. The layer runs in another kernel, slower, and sometimes one that has been used less: tails
    of kernels whose tile does not divide the matrix have returned wrong columns before (ENG703 lists those).

    ## What you will see
    Lower throughput than expected, a log line about a fallback, or a refusal while loading.

    ## How to tell it from its look-alikes
    A shape that contradicts the config is QNT104 or CFG102. A degree of parallelism that does not divide is ENG701.
    Small test models are outside many limits and are sound.

    ## How to confirm
    Divide the named number by the multiple; look for the kernel's name in the engine's log.

    ## How to repair it
    Choose another group size or pad before quantising, use fewer ranks, or accept the slower kernel. Nothing is done to
    the file unattended.

    ## References
    vllm-project/vllm#13227, vllm-project/vllm#6258
    """
    misfits = list(_misfits(modules, settings))
    stopping = [item for item in misfits if settings.engine is not None and STOPS in item.kernel.otherwise]
    yield from _findings(stopping, Severity.WARNING)
    yield from _findings([item for item in misfits if item not in stopping], Severity.INFO)


def _misfits(modules: Modules, settings: Settings) -> Iterator[Misfit]:
    for example, members in modules.classes():
        tag, shape = format_tag(example), example.form.shape
        ranks = 1 if example.form.format == "gguf" else settings.tensor_parallel or 1
        if tag is None or example.kind != "linear" or not example.form.is_quantized or shape is None or len(shape) < 2:
            continue
        for kernel in kernel_limits(tag, settings.engine):
            reasons = _violations(kernel, example, shape, ranks)
            if reasons:
                yield Misfit(kernel=kernel, example=example, members=members, reason=reasons[0])


def _violations(kernel: KernelLimit, module: StoredModule, shape: tuple[int, ...], ranks: int) -> list[str]:
    scheme, role = module.form.scheme, role_of(module.template)
    out_features, in_features = shape[-2], shape[-1]
    if role in (Role.COLUMN, Role.KEY_VALUE) and out_features % ranks == 0:
        out_features //= ranks
    if role is Role.ROW and in_features % ranks == 0:
        in_features //= ranks
    size = None
    if scheme is not None and scheme.strategy in ("group", "channel"):
        size = scheme.group_size or -1
    return kernel.violations(scheme.num_bits if scheme is not None else None, size, out_features, in_features)


def _findings(misfits: list[Misfit], severity: Severity) -> Iterator[Finding]:
    """One finding for all kernels: the first misfit as example, the others counted."""
    kernels: dict[str, int] = {}
    for item in misfits:
        name = f"{item.kernel.kernel} ({', '.join(item.kernel.engines)})"
        kernels[name] = kernels.get(name, 0) + len(item.members)
    for item in misfits[:1]:
        names = dict.fromkeys(module.name for one in misfits for module in one.members)
        by_name = {module.name: module for one in misfits for module in one.members}
        yield Finding(
            location=item.example.place(),
            message=f"{item.example.name}: {item.kernel.kernel} does not take it: {item.reason}; "
            f"{item.kernel.otherwise}. Layers outside the limits: {_table(kernels)}",
            severity=severity,
            measured={f"layers outside {name}": count for name, count in kernels.items()},
            bound={"layers outside": 0},
            places=tuple(by_name[name].place() for name in names) if len(names) > 1 else (),
            fold="kernels",
        )


def _table(kernels: dict[str, int]) -> str:
    return "; ".join(f"{name}: {count}" for name, count in kernels.items())
