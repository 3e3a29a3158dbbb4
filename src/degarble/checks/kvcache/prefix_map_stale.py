"""KVC627: the prefix map leads to a block that does not hold what it promises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC627", level=Level.LIVE, symptom_of=before("KVC627"))
def prefix_map_stale(trace: Verdict) -> Iterator[Finding]:
    """The prefix map leads to a block that does not hold what it promises.

    ## What it looks for
    A block is published when all its rows are written by finished steps, with the ids they hold; it is not written
    while published; it is evicted before it is handed out for new content; a hit finds its hash at its block.
    Exact.

    ## Why output turns to garbage
    A later request takes the block for a prefix that is not in it.

    ## What you will see
    Repeating a prompt after others ran (A, B, A) gives another answer.

    ## How to tell it from its look-alikes
    Two blocks under one hash are legal. A cached block without holders may be hit again.

    ## How to confirm
    Send A, then enough other prompts to reuse its blocks, then A again.

    ## How to repair it
    Remove the map's entry in the same place that hands the block out.

    ## References
    GeeeekExplorer/nano-vllm#163, vllm-project/vllm#4761, vllm-project/vllm#49125
    """
    return broken(trace, "KVC627", "store", "hit")
