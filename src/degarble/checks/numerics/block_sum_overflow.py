"""NUM309: the fp16 sum of an activation block."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.half_precision import LARGEST_HALF
from degarble.evidence.overflow_walk import OverflowWalk
from degarble.finding import Confidence, Finding, Severity
from degarble.registry import Level, check

BLOCK = 32


@check("NUM309", severity=Severity.WARNING, confidence=Confidence.LIKELY, level=Level.FORWARD)
def block_sum_overflow(overflow_walk: OverflowWalk) -> Iterator[Finding]:
    """32 activations that share an 8-bit block can add up beyond fp16, in which their sum is stored.

    ## What it looks for
    32 times the largest input of every linear whose GGUF form has a minimum (Q4_1, Q5_1, Q2_K, Q4_K, Q5_K): their
    kernels read the sum of each block of 32 inputs, stored in fp16. Beyond 65504 it is a warning, with the largest sum
    that was seen.

    ## Why output turns to garbage
    An infinite sum times the minimum is infinite, whatever the other blocks hold.

    ## What you will see
    NaN or one repeated token on CUDA, on some prompts; fine with Q4_0, Q6_K or Q8_0, which read no sums.

    ## How to tell it from its look-alikes
    Overflow of single values is NUM302. A file that fails everywhere, on the CPU too, is damaged.

    ## How to confirm
    Quantise the same model to Q8_0 and run the prompt again.

    ## How to repair it
    Keep the named tensors in a form without a minimum. The weights have to be quantised again: not safe unattended.

    ## References
    ggml-org/llama.cpp#21652, ggml-org/llama.cpp#22571
    """
    for one in overflow_walk.block_sums:
        if BLOCK * one.largest > LARGEST_HALF:
            seen = "beyond" if one.sum > LARGEST_HALF else "within"
            yield Finding(
                location=one.location,
                message=f"inputs of {one.location.module} reach {one.largest:.5g}: 32 of them may add up to "
                f"{BLOCK * one.largest:.5g}, beyond fp16; the largest sum seen is {one.sum:.5g}, {seen} it",
                measured={"largest": one.largest, "sum": one.sum},
                bound={"sum_max": LARGEST_HALF},
            )
