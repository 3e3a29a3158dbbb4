"""NUM305: a static activation scale that clips what really comes."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.overflow_walk import OverflowWalk
from degarble.finding import Finding
from degarble.registry import Level, check

MAX_RATIO = 2.0
"""A calibration may leave the largest values out; half of the largest is more than that."""
MAX_SHARE = 1e-3


@check("NUM305", level=Level.FORWARD)
def static_activation_scale_too_small(overflow_walk: OverflowWalk) -> Iterator[Finding]:
    """The stored activation scale times the largest code is far below the values that enter the module.

    ## What it looks for
    Inputs of every linear with a stored activation scale (448 codes of E4M3, 127 of INT8): the largest against the
    scale's reach, and the share beyond it. Reported if the largest is more than twice the reach, or more than 0.1 % are
    clipped. Both bounds are policies: healthy calibrated files clip nothing of ordinary text.

    ## Why output turns to garbage
    Everything beyond the reach becomes the same number; massive activations are what the model steers by.

    ## What you will see
    Repetition or wrong facts in the quantised model only; worse on text unlike the calibration's.

    ## How to tell it from its look-alikes
    A scale that was never calibrated (1.0 everywhere) is QNT118. A clipped weight shows in DIV902.

    ## How to confirm
    Serve with dynamic activation scales: the fault goes.

    ## How to repair it
    Calibrate again with the tokens that matter, the first token included; or switch to dynamic scales. Not safe
    unattended.

    ## References
    vllm-project/vllm#33972
    """
    for one in overflow_walk.clipped:
        if one.largest > MAX_RATIO * one.reach or one.share > MAX_SHARE:
            yield Finding(
                location=one.location,
                message=f"inputs of {one.location.module} reach {one.largest:.5g}, its activation scale ends at "
                f"{one.reach:.5g}: {one.share:.3%} of the values are clipped",
                measured={"largest": one.largest, "reach": one.reach, "clipped_share": one.share},
                bound={"ratio_max": MAX_RATIO, "clipped_share_max": MAX_SHARE},
            )
