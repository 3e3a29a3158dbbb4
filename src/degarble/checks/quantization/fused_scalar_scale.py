"""QNT118: a matrix stored fused whose one scale is a single number."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checkpoint.interface import num_elements
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

FUSED_LEAVES = frozenset(
    {"qkv_proj", "gate_up_proj", "query_key_value", "qkv", "Wqkv", "W_pack", "c_attn", "in_proj_qkvz", "in_proj_ba"}
)
"""Names under which families store q/k/v, gate/up and their relatives in one tensor."""

SCALE_ROLES = ("scale", "global_scale", "input_scale")


@check("QNT118", severity=Severity.WARNING, symptom_of=("CKP101", "CKP105", "QNT104", "QNT105"))
def fused_scalar_scale(modules: Modules) -> Iterator[Finding]:
    """A matrix that is stored fused (qkv, gate_up) has one single scale for all its parts.

    ## What it looks for
    Quantised modules that hold several projections in one tensor (`qkv_proj`, `gate_up_proj`, `query_key_value`, …) and
    of whose scales (of the weight, global, or of the activations) one is a single number.

    ## Why output turns to garbage
    Engines build such a layer from parts and keep a scale for each. A loader that finds one number fills the first slot
    and leaves the others as they were allocated; the maximum over all slots then decides, and it is a leftover.

    ## What you will see
    In affected versions a model that scores near zero (GSM8K 0.005 instead of 0.945) without an error; with lucky
    leftovers, slightly worse answers.

    ## How to tell it from its look-alikes
    Scales per output row, group or block have no slots to leave empty. Parts stored one by one are combined on purpose,
    and how far their scales differ is WGT213. Experts in one tensor with a scale for each expert are silent.

    ## How to confirm
    Look at the shape of the named scale: `[]` or `[1]` beside a fused weight. Load in the engine and print the scale
    parameter after loading: it must hold the same number in all slots.

    ## How to repair it
    Use an engine version with the fix, or store the parts one by one, each with a copy of the scale: the values do not
    change, but names do, so this is not done unattended.

    ## References
    sgl-project/sglang#29151, vllm-project/vllm#39764, sgl-project/sglang#14102
    """
    for example, members in modules.classes():
        role = scalar_role(example)
        if role is not None:
            for module in members:
                yield _finding(module, role)


def scalar_role(module: StoredModule) -> str | None:
    """The scale of a fused module that is one number; None for all other modules."""
    leaf = module.template.rpartition(".")[2]
    if leaf not in FUSED_LEAVES or not module.form.is_quantized or module.kind in ("unknown", "router"):
        return None
    for role in SCALE_ROLES:
        part = module.part(role)
        if part is not None and num_elements(part.shape) == 1 and not _is_one_block(module, role):
            return role
    return None


def _is_one_block(module: StoredModule, role: str) -> bool:
    """A weight that is smaller than one block or group has one scale for good reason."""
    return role == "scale" and module.form.scheme is not None and module.form.scheme.strategy != "tensor"


def _finding(module: StoredModule, role: str) -> Finding:
    info = module.part(role)
    assert info is not None
    return Finding(
        location=module.place(role),
        message=f"{info.name} is one number for a fused matrix of {list(module.form.shape or ())}: "
        "some loaders fill only the first of several slots with it",
        measured={"elements": 1},
        bound={"elements": "one per fused part, output row or block"},
        fix=Fix(id="split-fused-tensor", safe=False),
        fold=f"{module.template.rpartition('.')[2]} {role}",
    )
