"""KVC614: kV heads do not divide over ranks or query heads, or a rank holds another number of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC614", level=Level.LIVE)
def kv_head_mapping_wrong(trace: Verdict) -> Iterator[Finding]:
    """KV heads do not divide over ranks or query heads, or a rank holds another number of them.

    ## What it looks for
    num_heads, num_kv_heads and tp of the meta line: kv(q) = q // (num_heads / num_kv_heads); tp ≤ num_kv_heads
    splits, tp > num_kv_heads repeats, and one must divide the other. A rank's tensor has max(1, num_kv_heads / tp)
    heads. Exact.

    ## Why output turns to garbage
    Query heads read the keys of another head, or a transfer cuts the cache at the wrong head.

    ## What you will see
    Degraded or nonsensical output under tensor parallelism only.

    ## How to tell it from its look-alikes
    Replicated heads (tp > num_kv_heads) are legal and are not counted twice. Latent caches are replicated on every
    rank.

    ## How to confirm
    Serve with tp 1.

    ## How to repair it
    Take the total from the config, never local × tp.

    ## References
    sgl-project/sglang#19086, huggingface/transformers#48307, vllm-project/vllm-ascend#3366
    """
    return broken(trace, "KVC614", "meta")
