"""KVC606: a forward reads a row that does not hold this request's token."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC606", level=Level.LIVE, symptom_of=before("KVC606"))
def stale_read(trace: Verdict) -> Iterator[Finding]:
    """A forward reads a row that does not hold this request's token.

    ## What it looks for
    Every row that a forward reads must hold exactly the token id and namespace (adapter, salt, images) of that
    request at that position, written since the block was allocated. Only columns whose block changed its owner or
    content since the last read are compared, which is enough. Exact.

    ## Why output turns to garbage
    Attention mixes in keys of another text. This is the last line of defence: it sees off-by-one slots, early
    frees, stale maps, failed rollbacks and collisions alike.

    ## What you will see
    Fluent text about the wrong thing.

    ## How to tell it from its look-alikes
    Rows that came by a load of a key the trace never stored are taken on trust. Where the fault itself was seen
    earlier, this finding is its symptom.

    ## How to confirm
    Recompute the request alone and compare its output.

    ## How to repair it
    Follow the block's life line in the finding to the event that should not have been.

    ## References
    sgl-project/sglang#23392, vllm-project/vllm#52360, GeeeekExplorer/nano-vllm#163
    """
    return broken(trace, "KVC606", "fwd")
