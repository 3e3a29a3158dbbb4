"""QNT108: of the parts that engines fuse into one matrix, some are plain and some quantised."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.evidence.fused_groups import FusedGroup
from degarble.evidence.skips import Skips
from degarble.finding import Finding, Fix, Location, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

EXPLAINED_BY = (
    "CKP102",
    "CKP105",
    "CFG104",
    "CFG110",
    "QNT101",
    "QNT102",
    "QNT109",
    "QNT111",
    "QNT120",
)

UNFUSED_METHODS = frozenset({"bitsandbytes", "quanto", "torchao", "mlx", "exl2", "exl3", "hqq"})
"""Methods whose usual readers keep the parts apart."""


@check(
    "QNT108",
    symptom_of=("CKP102", "CKP105", "CFG104", "CFG110", "QNT101", "QNT102", "QNT109", "QNT111", "QNT120"),
)
def fused_group_partly_skipped(
    fused_groups: Sequence[FusedGroup], is_gguf: bool, skips: Skips | None = None
) -> Iterator[Finding]:
    """Some of q/k/v or of gate/up are plain and the others quantised, but engines build them as one matrix.

    ## What it looks for
    For each layer (and expert) the modules that engines concatenate: q, k and v; gate and up; the two MLA projections;
    their relatives in linear attention. All must be stored plain or all quantised, and the skip list must name all or
    none of them.

    ## Why output turns to garbage
    A fused matrix has one form. If the list names q and k but not v, the engine refuses to load, or takes the form of
    the first part for all: plain values are then read as codes, or codes as values.

    ## What you will see
    An error that some but not all shards are skipped, a KeyError for a fused parameter, or garbage from this layer on.

    ## How to tell it from its look-alikes
    Parts with different bit widths, types (GGUF) or scales are another matter. For methods whose readers do not fuse
    (bitsandbytes, quanto, torchao, MLX) this is a warning, since only some servers break. A part that is plain without
    any entry is QNT109, and this finding its symptom.

    ## How to confirm
    List the tensors of the group: one has scales, another has a plain weight.

    ## How to repair it
    If the parts are all quantised and only the list is partial, complete or empty it for this group: the disk decides,
    safe unattended. If they are stored differently, dequantise the quantised parts and list them, which costs memory,
    or quantise the rest again; not done unattended.

    ## References
    vllm-project/vllm-omni#5225, vllm-project/vllm#11354, vllm-project/vllm#12617
    """
    if is_gguf:
        return
    listed = skips.listed_by_all if skips is not None else frozenset[str]()
    for group in fused_groups:
        if not listed and len({id(module.form) for module in group}) == 1:
            continue
        quantized = [module for module in group if module.form.is_quantized]
        plain = [module for module in group if module.form.format == "plain" and module.payload is not None]
        if quantized and plain:
            yield _stored(group, plain, quantized, skips)
        elif listed and quantized and skips is not None:
            named = [module for module in group if module.name in listed]
            if named and len(named) < len(group):
                yield _listed(group, named, skips)


def _stored(
    group: FusedGroup, plain: Sequence[StoredModule], quantized: Sequence[StoredModule], skips: Skips | None
) -> Finding:
    minority = plain[0] if len(plain) <= len(quantized) else quantized[0]
    key = next((view.key for view in skips.views if minority.name in view.listed), None) if skips is not None else None
    return Finding(
        location=minority.place(key=key),
        message=f"{', '.join(_leaves(plain))} of {_parent(minority)} are stored plain, {', '.join(_leaves(quantized))} "
        "quantised: an engine that fuses them cannot represent both",
        severity=_severity(skips),
        measured={"plain": _names(plain), "quantized": _names(quantized)},
        bound={"forms": 1},
        fix=Fix(id="unify-fused-group", safe=False),
        places=_places(minority, group, key),
        fold="stored",
    )


def _listed(group: FusedGroup, named: Sequence[StoredModule], skips: Skips) -> Finding:
    others = [module for module in group if module not in named]
    first, file, key = named[0], skips.declaration.file, skips.views[0].key
    return Finding(
        location=first.place(file=file, key=key),
        message=f"{file}: {key} names {', '.join(_leaves(named))} of {_parent(first)} but not "
        f"{', '.join(_leaves(others))}, which engines fuse with them; all are stored quantised",
        severity=_severity(skips),
        measured={"listed": _names(named), "not_listed": _names(others)},
        bound={"listed": "all or none"},
        fix=Fix(id="expand-skip-list", safe=True),
        places=tuple(module.place(file=file, key=key) for module in group),
        fold="listed",
    )


def _places(first: StoredModule, group: FusedGroup, key: str | None) -> tuple[Location, ...]:
    ordered = [first, *(module for module in group if module is not first)]
    return tuple(module.place(key=key) for module in ordered)


def _severity(skips: Skips | None) -> Severity | None:
    return Severity.WARNING if skips is not None and skips.declaration.method in UNFUSED_METHODS else None


def _names(modules: Sequence[StoredModule]) -> list[str | int | float | bool | None]:
    return [module.name for module in modules]


def _leaves(modules: Sequence[StoredModule]) -> list[str]:
    return [module.name.rpartition(".")[2] for module in modules]


def _parent(module: StoredModule) -> str:
    return module.name.rpartition(".")[0]
