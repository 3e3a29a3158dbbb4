"""NUM306: a block whose output lost its size."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.forward_pass import ForwardPass
from degarble.finding import Confidence, Finding
from degarble.registry import Level, check

MAX_RATIO = 0.25
"""Of the standard deviations: rounding leaves it within a few per cent, and the model case lost 92 %."""


@check("NUM306", confidence=Confidence.LIKELY, level=Level.FORWARD, symptom_of=("DIV903", "DIV902"))
def activation_collapse(forward_pass: ForwardPass) -> Iterator[Finding]:
    """The output of an attention or feed-forward block is a fraction of the reference's.

    ## What it looks for
    Standard deviation and mean |x| of what each block adds to the residual stream, candidate on the reference's input,
    against the reference. Reported below a quarter.

    ## Why output turns to garbage
    A consumer was scaled and nobody compensated, or a scale was lost: the block says almost nothing, and the stream goes
    on without it. The model case is a scaled norm whose consumers keep their weights: the last feed-forward blocks lose 92 %.

    ## What you will see
    Repetition and shallow answers when the last blocks are hit; often nothing when it is one block in the middle.

    ## How to tell it from its look-alikes
    The first blocks of many models add little by training: it is the ratio to the reference that counts, never the size.

    ## How to confirm
    `degarble_engine.hooks.watch(model)` in a running torch model shows the same numbers.

    ## How to repair it
    Repair the cause named with it, mostly one linear or norm of the block. Not safe unattended.

    ## References
    vllm-project/llm-compressor#2102
    """
    for one in forward_pass.collapses:
        yield Finding(
            location=one.location,
            message=f"{one.block}: its output has {one.ratio:.1%} of the reference's standard deviation",
            measured={"std_ratio": one.ratio, "mean_abs_ratio": one.mean_ratio},
            bound={"std_ratio": MAX_RATIO},
        )
