"""NUM304: scores of attention beyond the range."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.checks.numerics.half_overflow import SCORES, finding_of
from degarble.evidence.overflow_walk import OverflowWalk
from degarble.finding import Finding
from degarble.registry import Level, check


@check("NUM304", level=Level.FORWARD, symptom_of=("DIV903", "DIV902"))
def attention_logits_overflow(overflow_walk: OverflowWalk) -> Iterator[Finding]:
    """Products of queries and keys leave the range before they are scaled.

    ## What it looks for
    The largest |q·k| that the mask lets through, before the scaling, in engines that hold scores in the served dtype.
    Bound: the largest number of that dtype. Engines that hold scores in fp32 are named as finite.

    ## Why output turns to garbage
    One infinite score makes a row of the softmax NaN, and every later layer with it.

    ## What you will see
    "!!!!" or NaN in eager attention, fine text with FlashAttention, or the reverse after a change of kernels.

    ## How to tell it from its look-alikes
    Overflow anywhere else is NUM302. A key bias that dwarfs its peers is WGT218 and often the reason.

    ## How to confirm
    Run with scores in fp32 (another attention kernel) and in bf16: both are fine.

    ## How to repair it
    Use a kernel with scores in fp32, or bf16. Dividing q_proj by a power of two needs the scaling changed too: not safe
    unattended.

    ## References
    ggml-org/llama.cpp#7805, ggml-org/llama.cpp#8412
    """
    for one in overflow_walk.left:
        if one.place == SCORES:
            yield finding_of(one)
