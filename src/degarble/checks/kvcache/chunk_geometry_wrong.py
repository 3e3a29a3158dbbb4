"""KVC626: a chunk does not begin where the last one ended, or the kernel gets another length than its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC626", level=Level.LIVE, symptom_of=before("KVC626"))
def chunk_geometry_wrong(trace: Verdict) -> Iterator[Finding]:
    """A chunk does not begin where the last one ended, or the kernel gets another length than its end.

    ## What it looks for
    Each forward [lo, hi): lo = tokens computed so far, kv = hi. Commits without drafts accept at the end of the
    known tokens. Exact.

    ## Why output turns to garbage
    A gap leaves rows unwritten that later tokens read; a length too large reads rows that nobody wrote, one too
    small hides the last tokens.

    ## What you will see
    Wrong from a chunk boundary on, for long prompts only.

    ## How to tell it from its look-alikes
    Chunks of any size are legal. Rollbacks make a request go back: a wrong length after one is KVC616.

    ## How to confirm
    Serve with chunked prefill off.

    ## How to repair it
    Compute ranges after the hit is known, and lengths per chunk.

    ## References
    GeeeekExplorer/nano-vllm#213, kekzl/imp#117, vllm-project/vllm#26042
    """
    return broken(trace, "KVC626", "fwd")
