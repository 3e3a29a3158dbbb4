"""One layer of the walk with a dump beside it: every module's local and inherited error, and those of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from degarble_engine.attribution.measures import relative_error
from degarble_engine.dumps.judge import LINEAR, NORM, OPERATOR, Laid
from degarble_engine.dumps.laid_out import LaidOut, names_of
from degarble_engine.numerics.tap import is_norm
from degarble_engine.numerics.walk import LayerRun

OPERATORS = {"o_proj": "attention", "down_proj": "activation"}
"""Linears that read what an operator made of other linears' outputs."""


def laid_layer(run: LayerRun, dump: LaidOut) -> Iterator[Laid]:
    """Everything of one layer."""
    modules = {name: module for name, module in run.module.named_modules() if _is_judged(module)}
    replaced: dict[str, Tensor] = {}
    for local in dump.modules(run.index):
        names = [name for name in names_of(local, modules) if name in run.taps.outputs]
        if not names:
            continue
        widths = [run.taps.outputs[name].shape[1] for name in names]
        found = dump.output(run.index, local, widths)
        if found is None:
            continue
        replaced |= dict(zip(names, found.split(widths, dim=1), strict=True))
        yield _module(run, dump, local, names, [modules[name] for name in names], found)
    yield from _operators(run, dump, modules, replaced)


def _is_judged(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear) or is_norm(module)


@torch.no_grad()
def _module(
    run: LayerRun, dump: LaidOut, local: str, names: list[str], modules: list[nn.Module], found: Tensor
) -> Laid:
    taps, norm = run.taps, is_norm(modules[0])
    given = dump.given(run.index, local, taps.inputs[names[0]].shape[1], is_norm=norm)
    wanted = None if given is None else torch.cat([module(given.float()) for module in modules], dim=1)
    breaks = not _finite(found) and (given is None or _finite(given))
    own = torch.cat([taps.outputs[name] for name in names], dim=1)
    return _laid(run, local, NORM if norm else LINEAR, found, wanted, own, breaks=breaks)


@torch.no_grad()
def _operators(
    run: LayerRun, dump: LaidOut, modules: dict[str, nn.Module], replaced: dict[str, Tensor]
) -> Iterator[Laid]:
    """Attention and activation: our own code on the engine's projections, against what the engine's next linear was given."""
    wanted: dict[str, Tensor] = {}
    for name in modules:
        if name.rpartition(".")[2] in OPERATORS:
            owner = name.rpartition(".")[0]
            found = dump.given(run.index, name, run.taps.inputs[name].shape[1]) if name in run.taps.inputs else None
            if found is not None and _all_replaced(owner, name, modules, replaced):
                wanted[name] = found
    if not wanted:
        return
    with ExitStack() as hooks:
        for name, values in replaced.items():
            handle = modules[name].register_forward_hook(_giving(values, run.taps.valid))
            hooks.callback(handle.remove)
        _, taps = run.again(run.input)
    for name, found in wanted.items():
        operator = OPERATORS[name.rpartition(".")[2]]
        given = all(_finite(replaced[one]) for one in replaced if one.startswith(name.rpartition(".")[0]))
        yield _laid(
            run, name.rpartition(".")[0], OPERATOR, found, taps.inputs[name], run.taps.inputs[name],
            operator=operator, breaks=given and not _finite(found),
        )  # fmt: skip


def _all_replaced(owner: str, last: str, modules: dict[str, nn.Module], replaced: dict[str, Tensor]) -> bool:
    """Whether the dump has every linear in front of the operator."""
    before = [name for name, module in modules.items() if isinstance(module, nn.Linear)
              and name.rpartition(".")[0] == owner and name != last]  # fmt: skip
    return bool(before) and all(name in replaced for name in before)


def _giving(values: Tensor, valid: Tensor) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], Tensor]:
    """A hook that gives the dumped rows; where the batch is padded, zeros, which causal attention never looks at."""

    def give(_: nn.Module, __: tuple[Tensor, ...], output: Tensor) -> Tensor:
        flat = torch.zeros(valid.numel(), values.shape[1], dtype=output.dtype)
        flat[valid.flatten()] = values.to(output.dtype)
        return flat.reshape(output.shape)

    return give


def _laid(
    run: LayerRun, local: str, kind: str, found: Tensor, wanted: Tensor | None, own: Tensor, *,
    operator: str = "", breaks: bool = False,
) -> Laid:  # fmt: skip
    values = found.float()
    return Laid(
        module=f"{run.model.skeleton.layer_name(run.index)}.{local}",
        layer=run.index,
        kind=kind,
        operator=operator,
        dtype=str(found.dtype).removeprefix("torch."),
        local=None if wanted is None else relative_error(values, wanted),
        inherited=relative_error(values, own),
        cosine=float(nn.functional.cosine_similarity(values.flatten(), own.float().flatten(), dim=0)),
        max_error=float((values - own).abs().max()),
        breaks=breaks,
    )


def _finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())
