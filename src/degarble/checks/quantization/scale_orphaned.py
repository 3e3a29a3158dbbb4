"""QNT102: scales, zero points or codebooks whose weight is not there, or is no longer quantised."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.methods.interface import Declaration
from degarble.registry import check

ACTIVATION_ROLES = frozenset({"input_scale", "input_scale_bound", "output_scale"})
"""Scales of activations: beside a plain weight they are left over and change nothing."""

EXPLAINED_BY = (
    "CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT109", "QNT110", "QNT114", "QNT120",
)  # fmt: skip


@check("QNT102", symptom_of=EXPLAINED_BY)
def scale_orphaned(modules: Modules, is_gguf: bool, declaration: Declaration | None = None) -> Iterator[Finding]:
    """A scale, zero point or other companion is stored, and the quantised weight it belongs to is not.

    ## What it looks for
    Tensors that only ever accompany a quantised payload. Either the module has no payload at all, or its weight is
    plain (or of another format) and the companions of the old form stayed behind.

    ## Why output turns to garbage
    Without a payload the layer runs on whatever its memory held. Beside a plain weight the companion shows that the
    weight changed its form on the way: if the codes were cast without being multiplied by their scales, every value is
    wrong by the scale, and nothing in the file says so any more.

    ## What you will see
    Strict loaders refuse the file with a list of missing or unexpected keys. Lenient ones print a warning and serve
    token soup, or, if only a small projection is hit, a slightly worse model.

    ## How to tell it from its look-alikes
    A plain weight that the config declares quantised is QNT109, and the stray scales are its symptom. A payload that is
    there under an unknown name is CFG110. Scales of the KV cache hang under attention and belong to no weight. Scales
    of activations beside a plain weight are left-overs of an exporter: a warning here.

    ## How to confirm
    Compare the range of the plain weight with the same module in other layers: raw codes are about a hundred times
    larger than weights. For a missing payload, look for its name in the index and in the source checkpoint.

    ## How to repair it
    Fetch the payload from the source checkpoint. If the plain weight is right, drop the companions: only a comparison
    with the source can tell, so neither is safe unattended.

    ## References
    deepseek-ai/DeepSeek-V3#2, kekzl/imp#1450, huggingface/transformers#47990
    """
    if is_gguf:
        return
    in_doubt = declaration is None and not any(example.form.is_quantized for example, _ in modules.classes())
    for example, members in modules.classes():
        form = example.form
        if not form.orphaned or example.canonical is None:
            continue
        severity, confidence = _weight(form.format == "companions", form.orphaned, in_doubt, form.is_quantized)
        for module in members:
            yield _finding(module, severity, confidence)


def _weight(
    is_bare: bool, roles: tuple[str, ...], in_doubt: bool, is_quantized: bool
) -> tuple[Severity | None, Confidence | None]:
    """Left-overs that change no value are a warning; so is a name like `scales` in a model that is plain throughout."""
    if in_doubt:
        return Severity.WARNING, Confidence.HINT
    if is_bare:
        return None, None
    if is_quantized or ACTIVATION_ROLES.issuperset(roles):
        return Severity.WARNING, None
    return None, Confidence.LIKELY


def _finding(module: StoredModule, severity: Severity | None, confidence: Confidence | None) -> Finding:
    stray = [module.parts[module.form.roles[role]] for role in module.form.orphaned]
    places = tuple(module.place(role) for role in module.form.orphaned)
    names = ", ".join(info.name for info in stray[:4])
    payload = module.payload
    beside = (
        f"beside {payload.name}, which is {payload.dtype}" if payload is not None else "and no weight they belong to"
    )
    return Finding(
        location=places[0],
        places=places if len(places) > 1 else (),
        message=f"{names} stored {beside}",
        severity=severity,
        confidence=confidence,
        measured={"orphaned_companions": list(module.form.orphaned)},
        bound={"orphaned_companions": 0},
        fold=f"{module.form.format} {' '.join(module.form.orphaned)}",
        fix=Fix(id="restore-payload", safe=False),
    )
