"""KVC619: the cache reaches beyond what a 32-bit index can address."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC619")
def index_overflows_32_bit(trace: Verdict) -> Iterator[Finding]:
    """The cache reaches beyond what a 32-bit index can address.

    ## What it looks for
    offset + Σ (extent − 1) × stride of every group, in elements and in bytes, against 2^31 − 1, unless the group
    declares index_bits 64. The first block beyond is named. Arithmetic, exact; that a kernel really is 32-bit only
    a device shows.

    ## Why output turns to garbage
    The index wraps: far blocks read other memory, or exact zeros.

    ## What you will see
    Small pools and short tests pass; with the production pool, retrieval fails from some length on.

    ## How to tell it from its look-alikes
    A pool beyond the limit is legal where every kernel is declared 64-bit.

    ## How to confirm
    Run with a pool of a few hundred blocks.

    ## How to repair it
    Use 64-bit offsets for block × stride, and declare index_bits.

    ## References
    vllm-project/vllm#52109, vllm-project/vllm-xpu-kernels#445, flashinfer-ai/flashinfer#3136
    """
    return broken(trace, "KVC619", "meta")
