"""QNT110: the router of a mixture of experts is quantised, or nothing keeps an engine from building it so."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.architectures.interface import Architecture
from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp, is_plain_matrix, skip_key
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

SWAPPING_METHODS = frozenset({"bitsandbytes", "torchao", "quanto", "mlx"})
"""They quantise every linear layer, routers included, and read them back in the same way: worse, not wrong."""

EXPLAINED_BY = ("CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT106")


@check("QNT110", symptom_of=EXPLAINED_BY)
def router_quantized(modules: Modules, is_gguf: bool) -> Iterator[Finding]:
    """The router of a mixture of experts is stored as codes, or is plain and not listed where only a list spares it.

    ## What it looks for
    The router (`gate`) of every layer. It must be stored plain. Where the method leaves nothing alone that is not
    listed, as in compressed-tensors, it must also be on the skip list, under at least one engine's reading.

    ## Why output turns to garbage
    Engines build routers as plain layers, or as quantised ones that nobody fills: then all scores are zero and experts
    are chosen independent of the token. A router that really is quantised chooses other experts for tokens whose scores
    are close, and every later layer sees another model.

    ## What you will see
    Degenerate text while per-layer norms look healthy; a missing-key error that names `gate`; or, if codes are read
    back correctly, an unexplained loss of quality.

    ## How to tell it from its look-alikes
    Expert projections called `gate_proj` are not routers. A skip entry that only some engines read as the router is
    QNT107. The score correction bias is no weight. bitsandbytes, torchao, quanto and MLX quantise every linear layer
    and read routers back as they wrote them, and llama.cpp does so with any tensor: a warning there.

    ## How to confirm
    Compare the router's parameter in the running engine with the file: all zeros, or another norm, proves it.

    ## How to repair it
    Add the full names of all routers to the skip list: safe unattended, since the stored weight is plain. A router that
    is stored as codes has to be taken from the original checkpoint.

    ## References
    vllm-project/vllm-omni#5573, vllm-project/compressed-tensors#733, vllm-project/compressed-tensors#759
    """
    for example, members in _router_classes(modules):
        if not example.form.is_quantized:
            continue
        method = example.form.scheme.method if example.form.scheme is not None else ""
        readable = is_gguf or method in SWAPPING_METHODS
        for module in members:
            payload = module.any_part
            yield Finding(
                location=module.place(),
                message=f"{payload.name}, a router, is stored as {module.form.format} codes ({payload.dtype})"
                + (": readable, but expert choices change" if readable else "; engines build routers plain"),
                severity=Severity.WARNING if readable else None,
                measured={"format": module.form.format, "dtype": payload.dtype},
                bound={"format": "plain"},
                fold=f"stored {module.form.format}",
                fix=Fix(id="restore-plain-weight", safe=False),
            )


@check("QNT110", symptom_of=EXPLAINED_BY)
def router_not_skipped(
    modules: Modules, declared_forms: DeclaredForms, architecture: Architecture | None = None
) -> Iterator[Finding]:
    """Routers that are plain on disk and that no reading of the skip list, and no convention of the method, spares."""
    declaration = declared_forms.declaration
    if declaration.implicit_plain or declaration.method in SWAPPING_METHODS:
        return
    routers = [
        module
        for example, members in _router_classes(modules)
        if is_plain_matrix(example)
        for module in members
        if not is_mtp(module, architecture)
    ]
    bare = [module for module in routers if declared_forms.of(module) is Promise.QUANTIZED]
    is_config = len(bare) * 2 > len(routers)
    for module in bare:
        yield Finding(
            location=_place(module, declared_forms, is_config),
            message=f"{module.any_part.name}, a router, is plain, but {declaration.file} declares {module.name} "
            f"quantised: {skip_key(declaration)} does not name it, and {declaration.method} spares no router by itself",
            severity=None if declaration.method == "compressed-tensors" else Severity.WARNING,
            measured={"routers_not_listed": len(bare), "routers": len(routers)},
            bound={"routers_not_listed": 0},
            fold="not listed",
            fix=Fix(id="add-skip-entry", safe=True),
        )


def _router_classes(modules: Modules) -> Iterator[tuple[StoredModule, list[StoredModule]]]:
    """Classes of routers. In a family that nobody described, a `gate` without experts beside it is something else."""
    blocks = {
        example.template.partition(".experts")[0] for example, _ in modules.classes() if ".experts" in example.template
    }
    for example, members in modules.classes():
        is_router = example.kind == "router" and example.canonical is not None
        if is_router and example.template.rpartition(".")[0] in blocks:
            yield example, members


def _place(module: StoredModule, forms: DeclaredForms, is_config: bool) -> Location:
    return Location(
        file=forms.declaration.file if is_config else module.any_part.file,
        key=skip_key(forms.declaration),
        tensor=module.any_part.name,
        module=module.name,
        layer=module.layer,
    )
