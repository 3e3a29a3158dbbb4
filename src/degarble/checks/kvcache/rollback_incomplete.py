"""KVC616: after rejected drafts, length or blocks are not those of the accepted prefix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC616", level=Level.LIVE, symptom_of=before("KVC616"))
def rollback_incomplete(trace: Verdict) -> Iterator[Finding]:
    """After rejected drafts, length or blocks are not those of the accepted prefix.

    ## What it looks for
    Commits and rollbacks: tokens are accepted where the known ones end, len = at + accepted − 1, and never more
    than was computed. The next forward goes on exactly there; drafts must be settled before; blocks with accepted
    rows stay. Exact.

    ## Why output turns to garbage
    Rows of rejected drafts count as context, or accepted ones are computed twice.

    ## What you will see
    Speculative decoding changes greedy output, a little more every round.

    ## How to tell it from its look-alikes
    Blocks beyond the length may stay in the table. Rejected rows are overwritten before they are read, and are
    silent.

    ## How to confirm
    Compare greedy output with and without speculation.

    ## How to repair it
    Trim k − accepted rows of the target, and at most k − accepted − 1 of the draft model.

    ## References
    lablup/mlxcel#994, ml-explore/mlx-lm#1109, vllm-project/vllm#16370
    """
    return broken(trace, "KVC616", "commit", "rollback")
