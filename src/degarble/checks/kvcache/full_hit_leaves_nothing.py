"""KVC625: a hit takes every token, or a forward computes an empty or impossible range."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC625", level=Level.LIVE, symptom_of=before("KVC625"))
def full_hit_leaves_nothing(trace: Verdict) -> Iterator[Finding]:
    """A hit takes every token, or a forward computes an empty or impossible range.

    ## What it looks for
    tok ≤ known tokens − 1 at each hit and each load; tok within the blocks taken; forwards with at least one token,
    inside the tokens there are. Exact.

    ## Why output turns to garbage
    With nothing to compute there are no logits to sample from, and what is sampled comes from an old buffer.

    ## What you will see
    Crashes with empty tensors, or a first token of another request, for prompts that are a multiple of the block
    size.

    ## How to tell it from its look-alikes
    A full hit that leaves the last token is the rule. A decode that is scheduled before its token is told
    (asynchronous) is silent.

    ## How to confirm
    Send one prompt of exactly k blocks twice.

    ## How to repair it
    Cap the hit at n − 1 tokens; recompute the last into an own copy.

    ## References
    GeeeekExplorer/nano-vllm#144, vllm-project/vllm#3239, GeeeekExplorer/nano-vllm#210
    """
    return broken(trace, "KVC625", "hit", "fwd")
