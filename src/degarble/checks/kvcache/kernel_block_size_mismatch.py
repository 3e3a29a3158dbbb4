"""KVC624: the manager's block size and the kernel's do not divide, or ids of one are used with the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC624", level=Level.LIVE, symptom_of=before("KVC624"))
def kernel_block_size_mismatch(trace: Verdict) -> Iterator[Finding]:
    """The manager's block size and the kernel's do not divide, or ids of one are used with the other.

    ## What it looks for
    block_size mod kernel_block_size = 0 for every group, and slots that are those of a formula with the two sizes
    mixed up. Exact.

    ## Why output turns to garbage
    With blocks of 128 and kernel pages of 64, position 70 of block 3 lands in slot 198, which is block 1.

    ## What you will see
    Garbage as soon as a sequence leaves its first kernel page.

    ## How to tell it from its look-alikes
    Two sizes that divide are legal, and so is a device row in kernel blocks.

    ## How to confirm
    Set --block-size to the kernel's.

    ## How to repair it
    Convert ids with the ratio of the sizes, in one place.

    ## References
    vllm-project/vllm#51031, vllm-project/vllm-ascend#7019
    """
    return broken(trace, "KVC624", "meta")
