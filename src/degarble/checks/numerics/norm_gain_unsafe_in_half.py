"""NUM303: a norm whose output may not fit into fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.architectures.interface import Architecture
from degarble.checks.weights.explained_by import DAMAGED_FILE
from degarble.evidence.half_precision import LARGEST_HALF
from degarble.evidence.modules import Modules
from degarble.evidence.norm_gains import norm_gains
from degarble.finding import Finding, Fix, Severity
from degarble.profile.tensor_profile import TensorProfile
from degarble.registry import Level, check


@check("NUM303", level=Level.CONTENT, severity=Severity.WARNING, symptom_of=("WGT203", "WGT217", *DAMAGED_FILE))
def norm_gain_unsafe_in_half(
    modules: Modules, profiles: Mapping[str, TensorProfile], architecture: Architecture | None = None
) -> Iterator[Finding]:
    """A norm can produce values beyond fp16: its largest gain times the root of its width exceeds 65504.

    ## What it looks for
    The largest |w| (|1 + w| where the family stores it so) of every norm of the text model, times the square root of
    its width. A normalised vector has that root as its largest possible entry, reached when one channel carries
    everything, as massive activations nearly do. Bound: 65504, the largest fp16 number. All bytes are read; exact as a
    bound, not a prediction. Healthy: 80 at most in 529 norms of one trained model and its slices, 0.12 % of the bound.

    ## Why output turns to garbage
    In fp16 the product becomes infinite, and the next matrix turns infinity into NaN or into clipped logits. In bf16
    and fp32 nothing happens, so the file itself is sound.

    ## What you will see
    With `--dtype float16` (the default of many 4-bit kernels): `<pad>` with a score of exactly -65504, empty answers
    or NaN, often only for some prompts.

    ## How to tell it from its look-alikes
    A norm that is out of line with its peers is damage: WGT217. Overflow inside the MLP or the residual stream needs a
    forward pass (NUM302) and happens with modest norms too.

    ## How to confirm
    Serve in bf16: if the fault goes, it was the range.

    ## How to repair it
    Serve in bf16, or let the engine compute norms in fp32 and clip. Dividing the norm and multiplying the next linear
    by the same power of two is exact for plain weights; with quantised ones only their scales change. Not safe
    unattended: the consumers must all be found.

    ## References
    OpenNMT/CTranslate2#1956, huggingface/transformers#36832
    """
    for gain in norm_gains(modules, profiles, architecture):
        if gain.peak > LARGEST_HALF:
            module = gain.module
            yield Finding(
                location=module.place(),
                message=f"{module.any_part.name}: gain {gain.largest:.5g} times the root of {gain.width} is "
                f"{gain.peak:.5g}, beyond what fp16 holds",
                measured={"gain": gain.largest, "peak": gain.peak},
                bound={"peak_max": LARGEST_HALF},
                fold="gain",
                fix=Fix(id="serve-in-bfloat16", safe=False),
            )
