"""KVC621: a request goes on from a recurrent state of another position or another request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC621", level=Level.LIVE, symptom_of=before("KVC621"))
def recurrent_state_mismatch(trace: Verdict) -> Iterator[Finding]:
    """A request goes on from a recurrent state of another position or another request.

    ## What it looks for
    Every state event: it belongs to one live request, is valid at the position the request goes on from, and is
    zeroed exactly at position 0. A forward of a recurrent group must start where its state is valid. Exact.

    ## Why output turns to garbage
    State-space and linear-attention layers carry everything in one state. A foreign one is a foreign text.

    ## What you will see
    Hybrid models answer nonsense after a prefix hit, while attention-only models are fine.

    ## How to tell it from its look-alikes
    A state slot of an ended or preempted request may be taken by another, zeroed first.

    ## How to confirm
    Turn prefix caching off for the hybrid model.

    ## How to repair it
    Key the state by request and position, and zero it on allocation.

    ## References
    vllm-project/tpu-inference#3412, sgl-project/sglang#39830
    """
    return broken(trace, "KVC621", "state")
