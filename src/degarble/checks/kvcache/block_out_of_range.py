"""KVC603: a block or slot outside the pool is used, or padding is used as an index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC603", level=Level.LIVE, symptom_of=before("KVC603"))
def block_out_of_range(trace: Verdict) -> Iterator[Finding]:
    """A block or slot outside the pool is used, or padding is used as an index.

    ## What it looks for
    Block ids of all events against num_blocks; slots of real tokens that are negative or past the pool; the null
    block handed out; padding rows of a graph that write anything but the pad slot; rows of a copy outside a block.
    Exact.

    ## Why output turns to garbage
    An index of −1 wraps to the last slot of the pool (−1 mod 80 is 79), one past the end writes foreign memory.
    Nothing stops, and the owner of that slot reads it later.

    ## What you will see
    An illegal access, or silent damage to whoever owns the last block.

    ## How to tell it from its look-alikes
    A pad slot inside the null block is legal when the meta line declares it. Context-parallel ranks drop positions
    of others with −1: that is KVC622 only where the position is their own.

    ## How to confirm
    Count which slots the padded rows of a replay hold.

    ## How to repair it
    Give padding a slot that nobody reads, and never use it as an index.

    ## References
    vllm-project/vllm#43810, vllm-project/vllm#53982
    """
    return broken(trace, "KVC603")
