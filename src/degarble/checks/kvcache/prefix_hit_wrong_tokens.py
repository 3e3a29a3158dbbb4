"""KVC608: a prefix hit gives blocks of other tokens, or of another adapter, salt or image."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC608", level=Level.LIVE, symptom_of=before("KVC608"))
def prefix_hit_wrong_tokens(trace: Verdict) -> Iterator[Finding]:
    """A prefix hit gives blocks of other tokens, or of another adapter, salt or image.

    ## What it looks for
    Every hit: the content stored under each hash must be the request's own ids in its own namespace, position by
    position. One hash stored for two contents or after two parents is reported at the store. Exact.

    ## Why output turns to garbage
    The request reads the keys of a foreign prompt as its own beginning.

    ## What you will see
    Answers about another user's image or document; confident and fluent.

    ## How to tell it from its look-alikes
    Two copies of one content under one hash are legal. A hit on a hash that the map does not have is KVC627.

    ## How to confirm
    Send the second prompt with caching off.

    ## How to repair it
    Compare tokens on a hit, or use a 128-bit hash over parent, ids and tagged namespace fields.

    ## References
    LMCache/LMCache#4086, vllm-project/vllm#30931, vllm-project/vllm#44701, NVIDIA/Megatron-LM#4158
    """
    return broken(trace, "KVC608", "hit", "store")
