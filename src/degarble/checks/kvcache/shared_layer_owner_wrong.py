"""KVC629: a layer shares the cache of a layer that is no owner itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC629", level=Level.LIVE)
def shared_layer_owner_wrong(trace: Verdict) -> Iterator[Finding]:
    """A layer shares the cache of a layer that is no owner itself.

    ## What it looks for
    The owner map of the meta line: owner(owner(l)) = owner(l), one owner for each layer, and the owner has a cache.
    Exact.

    ## Why output turns to garbage
    The layer reads a cache that is never written, or another layer's.

    ## What you will see
    Models with cross-layer sharing are wrong from the first token.

    ## How to tell it from its look-alikes
    A layer that owns its cache names itself.

    ## How to confirm
    Compare the data pointers of the layers that share.

    ## How to repair it
    Resolve chains of owners when the cache is built.

    ## References
    vllm-project/vllm-ascend#11791, ml-explore/mlx-lm#1396
    """
    return broken(trace, "KVC629", "meta")
