"""KVC604: a block that several requests hold is written without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC604", level=Level.LIVE, symptom_of=before("KVC604"))
def block_written_by_two(trace: Verdict) -> Iterator[Finding]:
    """A block that several requests hold is written without a copy.

    ## What it looks for
    Every write of a forward or a copy: the block's table entries must be the writer's alone. A copy-on-write must
    bring every valid row, layer and part. Exact; the block's life line is in the finding.

    ## Why output turns to garbage
    The other holders go on reading rows that now belong to a different continuation.

    ## What you will see
    Forked or beam requests answer for one another; the first wrong token is the first after the fork.

    ## How to tell it from its look-alikes
    Shared blocks that nobody writes are what sharing is for. A copy-on-write (`free` of the source's column,
    `alloc` in its place, `copy`) is silent. A block handed out twice is KVC605.

    ## How to confirm
    Run the same requests without forks or prefix sharing.

    ## How to repair it
    Copy the block before the first write past the fork.

    ## References
    vllm-project/vllm#17362, xLLM-AI/xllm#1984, vllm-project/vllm-ascend#16013
    """
    return broken(trace, "KVC604", "fwd", "copy")
