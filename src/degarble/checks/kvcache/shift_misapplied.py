"""KVC630: after a context shift the keys are rotated by another amount than their positions moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC630", level=Level.LIVE, symptom_of=("KVC623",))
def shift_misapplied(trace: Verdict) -> Iterator[Finding]:
    """After a context shift the keys are rotated by another amount than their positions moved.

    ## What it looks for
    Each shift adds its delta to what is pending; a rotation (`applied` a number, or true for all that is pending)
    must equal the sum. 0 or false leaves it pending. Exact.

    ## Why output turns to garbage
    Old keys keep angles of positions that they no longer have.

    ## What you will see
    Confusion from the second context shift on.

    ## How to tell it from its look-alikes
    Several moves with one rotation of their sum are legal, and a shift that does not tell `applied` is not judged.

    ## How to confirm
    Raise the context size so that nothing is shifted.

    ## How to repair it
    Accumulate deltas until they are applied, for every stream and layer.

    ## References
    ggml-org/llama.cpp#3825, ggml-org/llama.cpp#14742
    """
    return broken(trace, "KVC630", "shift")
