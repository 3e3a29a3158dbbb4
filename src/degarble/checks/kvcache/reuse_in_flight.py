"""KVC617: a block is reused while an open step or transfer still reads or writes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC617", level=Level.LIVE, symptom_of=before("KVC617"))
def reuse_in_flight(trace: Verdict) -> Iterator[Finding]:
    """A block is reused while an open step or transfer still reads or writes it.

    ## What it looks for
    Every alloc, load and write against the blocks of open steps and transfers, and reads while a load is open. A
    block freed inside a step may be handed out after the step's end only. Exact about the order in the trace;
    whether the race hits is a matter of timing.

    ## Why output turns to garbage
    The running kernel or copy sees half of the old and half of the new content. Often the corrupted request is an
    innocent one.

    ## What you will see
    Rare garbage under load, cancels and preemption; gone when run one at a time.

    ## How to tell it from its look-alikes
    Freeing inside an open step is legal as long as nobody takes the block, and so is a prefix hit on a block that
    is being stored.

    ## How to confirm
    Disable asynchronous scheduling or offload.

    ## How to repair it
    Hold blocks until the step or copy that uses them has ended.

    ## References
    vllm-project/vllm#52360, vllm-project/vllm-ascend#14055, sgl-project/sglang#23392, vllm-project/vllm#47282
    """
    return broken(trace, "KVC617", "step", "xfer")
