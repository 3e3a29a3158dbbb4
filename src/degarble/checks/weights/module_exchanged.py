"""WGT221: two modules of a layer that have each other's weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.checks.weights.explained_by import DAMAGED_FILE, DAMAGED_VALUES, WRONG_READING
from degarble.checks.weights.row_pairs_interleaved import CHANGED_CODES
from degarble.errors import EvidenceMissing
from degarble.evidence.block_look import BlockLook
from degarble.evidence.modules import Modules
from degarble.finding import Confidence, Finding, Fix
from degarble.profile.layer import JointProfile
from degarble.registry import Level, check

SUSPICIOUS = -0.5
MAX_KEY_VALUE = -1.5
"""Healthy 0.7 and more, exchanged the negative; random weights -0.56 at least."""
MAX_GATE_UP = -6.0
"""Healthy 8.5 and more over all neurons, exchanged the negative; random weights -2.1 at least."""


@check(
    "WGT221",
    confidence=Confidence.LIKELY,
    level=Level.CONTENT,
    symptom_of=("WGT209", "WGT225", *CHANGED_CODES, *DAMAGED_VALUES, *DAMAGED_FILE, *WRONG_READING),
)
def module_exchanged(joint: Sequence[JointProfile], block_look: BlockLook, modules: Modules) -> Iterator[Finding]:
    """Two modules of one layer hold each other's weights: k_proj and v_proj, or gate_proj and up_proj.

    ## What it looks for
    Whether rows belong together. For keys and values log[T(q,k) T(v,o) / (T(q,v) T(k,o))], where T is the mean squared
    cosine of the rows of two modules times their width: 1.7 and more in all heads of healthy layers, the negative if
    exchanged, -1.1 and more in random weights. Reported below -1.5. For the MLP |z mean cos(up, down)| - |z mean
    cos(gate, down)|: turning the signs of up_i and down_i changes no output, so only up can have a mean cosine with
    down. Healthy 8.4 and more, exchanged the negative; reported below -6. Measured on 1,267 blocks of 150 checkpoints
    and 147 random models: docs/calibration.md. A few rows are read first, all of them before anything is reported.

    ## Why output turns to garbage
    The shapes are equal, so every loader is content: keys are mixed as if they were values, or the activation function
    is applied to the wrong half.

    ## What you will see
    Nonsense, if all layers are exchanged (a wrong mapping, a fused tensor cut in the wrong order). One layer of many
    costs quality only.

    ## How to tell it from its look-alikes
    AWQ and SmoothQuant scale rows of up_proj against columns of down_proj, which turns the correlation of their norms
    around: norms are not used here. Untrained weights stay near zero and are not reported. A permutation inside words
    is WGT209, interleaved rows are WGT225; both explain this.

    ## How to confirm
    With `--reference`, WGT228 says whose weights each module holds.

    ## How to repair it
    Give the two modules each other's tensors, all companions with them. Exact, but the evidence is statistical: not
    unattended without a reference.

    ## References
    vllm-project/vllm#52240, vllm-project/vllm#27024
    """
    if not any(one.key_value is not None or one.gate_up is not None for one in joint):
        raise EvidenceMissing("no layer whose k and v, or gate and up, could be compared")
    for profile in joint:
        if _is_low(profile.key_value, SUSPICIOUS) or _is_low(profile.gate_up, SUSPICIOUS):
            whole = block_look.whole(profile)
            if whole is not None and whole.key_value is not None and whole.key_value < MAX_KEY_VALUE:
                yield from _findings(whole, ("k", "v"), whole.key_value, MAX_KEY_VALUE, modules)
            if whole is not None and whole.gate_up is not None and whole.gate_up < MAX_GATE_UP:
                yield from _findings(whole, ("gate", "up"), whole.gate_up, MAX_GATE_UP, modules)


def _is_low(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def _findings(
    profile: JointProfile, parts: tuple[str, str], value: float, bound: float, modules: Modules
) -> Iterator[Finding]:
    names = [profile.modules[part] for part in parts]
    for name, other in (names, names[::-1]):
        yield Finding(
            location=modules[name].place(),
            message=f"{name} holds what {other} should hold: the rows of both fit their partners only if the two are "
            f"exchanged (statistic {value:+.1f}, healthy layers are above 0)",
            measured={"statistic": round(value, 2)},
            bound={"min": bound},
            fix=Fix(id="exchange-modules", safe=False),
            fold=f"{parts[0]} and {parts[1]}",
        )
