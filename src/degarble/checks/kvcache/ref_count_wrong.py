"""KVC605: the reference count of a block is not the number of table entries that hold it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC605", level=Level.LIVE, symptom_of=before("KVC605"))
def ref_count_wrong(trace: Verdict) -> Iterator[Finding]:
    """The reference count of a block is not the number of table entries that hold it.

    ## What it looks for
    After each alloc, ref and free: the engine's own counts where told, no free of a block that the request does not
    hold, no hand-out of a block that a table still holds, no column overwritten, nothing held when a request
    finishes, aborts or is preempted. Exact. What lives when the trace ends is no fault.

    ## Why output turns to garbage
    A block that is free twice is handed to two owners, who overwrite one another. One that is never free again is
    lost.

    ## What you will see
    Garbage in an unrelated request some time after the real fault, an assertion in the allocator, or a pool that
    shrinks.

    ## How to tell it from its look-alikes
    A cached block without holders counts 0 and is legal; a shared one counts each table.

    ## How to confirm
    Check the allocator after every step: free + held + null = num_blocks.

    ## How to repair it
    Reject a free by who does not hold the block, before anything is counted down.

    ## References
    LMCache/LMCache#5005, vllm-project/vllm#42612, NVIDIA/TensorRT-LLM#14937
    """
    return broken(trace, "KVC605", "alloc", "ref", "free")
