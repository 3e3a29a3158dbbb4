"""KVC609: bytes were written past the requested end of an allocation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.finding import Finding
from degarble.kvcache.declaration import AllocationRecord
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import allocation_violations
from degarble.registry import check


@check("KVC609")
def allocation_crosses_bound(cache_allocations: Sequence[AllocationRecord], cache_file: str) -> Iterator[Finding]:
    """More bytes were written to an allocation than were requested for it.

    ## What it looks for
    `allocations` of a declaration: for each the bytes requested, the bytes set aside (rounded up to pages) and how far
    it was written, as canaries after the requested end show it. Written past the request is the fault, even where it
    stays inside the rounded size: 3072 bytes get 4096, 6144 get 8192, and a caller that takes the rounded size for the
    size writes 1024 or 2048 bytes that are not its own.

    ## Why output turns to garbage
    The end of a page is free space to the allocator. As soon as it gives a small request that space, one tensor's rows
    are another one's scales, block tables or hidden states. Which one depends on what was allocated when.

    ## What you will see
    Garbage that comes and goes with load and with the order of requests, and that no single request reproduces.

    ## How to tell it from its look-alikes
    Padding between the pages of a padded KV layout belongs to the tensor and may be anything; only the end of an
    allocation counts. A block written by two sequences (KVC604) stays inside one tensor.

    ## How to confirm
    Run with red zones between allocations and fill them before each step: they change in the step that writes too far.

    ## How to repair it
    Pass the requested size on, not the rounded one; round at the allocator only. Not done unattended: it is code.

    ## References
    CUDA C++ Programming Guide, memory allocation granularity; NVIDIA/TensorRT-LLM#14937
    """
    for violation in allocation_violations(cache_allocations):
        yield finding_of(violation, cache_file)
