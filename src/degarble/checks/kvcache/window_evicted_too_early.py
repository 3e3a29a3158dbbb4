"""KVC615: a block is freed that a position inside the sliding window still reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC615", level=Level.LIVE, symptom_of=before("KVC615"))
def window_evicted_too_early(trace: Verdict) -> Iterator[Finding]:
    """A block is freed that a position inside the sliding window still reads.

    ## What it looks for
    A column may go when its last position is below settled − window + 1, where settled is what finished steps
    computed. Judged when the column is freed, and at every forward that would read a freed column (after a
    rollback, for instance). Exact.

    ## Why output turns to garbage
    The kernel reads the null block, or the next owner's rows, at the far edge of the window.

    ## What you will see
    Damage that begins at one length and follows the window edge.

    ## How to tell it from its look-alikes
    Freed columns below the window hold the null block and are silent. A copy-on-write leaves its column for a
    moment, and is silent too.

    ## How to confirm
    Widen the window by a block in the evictor only.

    ## How to repair it
    Count processed tokens, not scheduled ones, and round the window start down.

    ## References
    vllm-project/vllm-ascend#13501, kekzl/imp#967, vllm-project/vllm#47728
    """
    return broken(trace, "KVC615", "fwd")
