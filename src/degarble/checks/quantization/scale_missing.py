"""QNT101: a quantised weight without a tensor that its values cannot be computed without."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.input_scales import INPUT_SCALE, InputScales
from degarble.evidence.modules import Modules
from degarble.finding import Finding, Fix, Severity
from degarble.formats.interface import StoredModule
from degarble.registry import check

EXPLAINED_BY = (
    "CKP101", "CKP102", "CKP103", "CKP105", "CFG110", "QNT110", "QNT114", "QNT120",
)  # fmt: skip


@check("QNT101", symptom_of=EXPLAINED_BY)
def scale_missing(modules: Modules, input_scales: InputScales) -> Iterator[Finding]:
    """A quantised weight is there, and a companion it cannot be computed without (scale, zero point, codebook) is not.

    ## What it looks for
    Every module whose payload holds codes, in every shard, every expert and the multi-token prediction layers: its
    format needs certain companions beside the codes, and one of them is in no weight file. Which ones follows from the
    format that the headers prove, not from the label in the config. Scales of activations count where single modules
    lack what the rest of the model has; a whole model without them is QNT119, single experts without them are QNT111.

    ## Why output turns to garbage
    Loaders allocate the companion, fill it from the file, and do not notice when the file has none: the slot keeps
    ones, zeros or old memory. With ones the raw codes are used as weights, a hundred times too large; with zeros the
    layer is silent. Some converters only print a warning and write the codes on under the name of a plain weight.

    ## What you will see
    Anything from token soup (one down_proj of a 135M model: perplexity 3e9) to a model that still says "Paris" (one
    k_proj: KL 0.075, below the noise of healthy 4-bit weights). A multi-token prediction layer shows only as a collapse
    of its acceptance rate.

    ## How to tell it from its look-alikes
    If a whole shard is missing or cut short, CKP101, CKP102 or CKP103 is the cause. A companion under a name that no
    loader maps is CFG110. Companions without their payload are QNT102. Group indices are optional unless the config
    asks for activation ordering, and zero points are absent by design in symmetric formats: neither is reported then.

    ## How to confirm
    List the names in the shard header that start with the module's name. Load with an engine that tracks which
    parameters were filled, or compare the loaded parameter with the file.

    ## How to repair it
    Copy the tensor from the checkpoint this one was converted from, or quantise this module again from the original
    weights. A scale cannot be computed from codes. Only in ModelSlim's static W8A8 it follows from the two scales that
    are stored, as `deq_scale / input_scale`: then the finding is a warning, and the repair safe.

    ## References
    deepseek-ai/DeepSeek-V3#2, unslothai/unsloth#6978, huggingface/transformers#47990, kekzl/imp#1450,
    radixark/miles#1641, vllm-project/vllm#57108, vllm-project/vllm-ascend#16728
    """
    lost = {module.name: module for module in input_scales.lost}
    for example, members in modules.classes():
        roles = tuple(role for role in example.form.missing if role != INPUT_SCALE)
        if roles and example.payload is not None:
            both = lost.pop(example.name, None) is not None
            for module in members:
                lost.pop(module.name, None)
            yield _finding(members, (*roles, INPUT_SCALE) if both else roles)
    for module in lost.values():
        yield _finding([module], (INPUT_SCALE,))


def _finding(members: list[StoredModule], roles: tuple[str, ...]) -> Finding:
    """One for a class of equals: 46,000 messages would say the same."""
    module = members[0]
    names = [module.name_of(role) for role in roles]
    derivable = set(roles) <= set(module.derivable())
    follows = "; it follows from what is stored, but fused kernels read it all the same" if derivable else ""
    label = module.form.scheme.label if module.form.scheme is not None else module.form.format
    return Finding(
        location=module.place(),
        places=tuple(member.place() for member in members) if len(members) > 1 else (),
        message=f"{module.any_part.name} holds {module.form.format} codes ({label}), and no weight file has "
        f"{_joined(names)}{follows}",
        severity=Severity.WARNING if derivable else None,
        measured={"missing_companions": [*roles], "present_companions": [*sorted(module.form.roles)]},
        bound={"missing_companions": 0},
        fold=f"{module.form.format} {' '.join(roles)}",
        fix=Fix(id="derive-companion", safe=True) if derivable else Fix(id="restore-companion", safe=False),
    )


def _joined(names: list[str]) -> str:
    return " nor ".join(names)
