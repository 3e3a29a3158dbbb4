"""KVC622: a context-parallel rank writes a position that is not its own, or drops one that is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC622", level=Level.LIVE, symptom_of=before("KVC622"))
def parallel_ownership_wrong(trace: Verdict) -> Iterator[Finding]:
    """A context-parallel rank writes a position that is not its own, or drops one that is.

    ## What it looks for
    owner(p) = ((p mod block_size × cp) // interleave) mod cp for sharded groups, all positions for window,
    recurrent and cross groups. Each rank's slots are checked against it, and no rank writes two files. Exact.

    ## Why output turns to garbage
    Tokens are on no rank or on two, and attention over the ranks counts them never or twice.

    ## What you will see
    Quality falls with cp > 1 only.

    ## How to tell it from its look-alikes
    −1 for a position of another rank is the rule, and silent.

    ## How to confirm
    Serve with cp 1.

    ## How to repair it
    Apply the owner transform to sharded groups only.

    ## References
    vllm-project/vllm#57260, LMCache/LMCache#1732
    """
    return broken(trace, "KVC622", "fwd")
