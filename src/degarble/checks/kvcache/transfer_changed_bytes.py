"""KVC618: a transfer changed bytes, left parts out, or sent rows before they were computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC618", level=Level.LIVE, symptom_of=before("KVC618"))
def transfer_changed_bytes(trace: Verdict) -> Iterator[Finding]:
    """A transfer changed bytes, left parts out, or sent rows before they were computed.

    ## What it looks for
    At the end of a transfer the digests of source and destination agree, and a load brings the digest that its key
    was stored with. Layers and parts are the group's. Stores and sends follow the step that wrote their blocks.
    Digests of a slot at write and read agree. Exact.

    ## Why output turns to garbage
    Counters of hits and bytes all look right while the restored cache is another one.

    ## What you will see
    Good answers on the first turn, garbage after a restore or on the decode side; the boundary is a chunk or a
    page.

    ## How to tell it from its look-alikes
    Loads of keys that the trace never stored are taken on trust. A load into a block that is being read is KVC617.

    ## How to confirm
    Compare digests per layer and token: a page's checksum does not see a permutation inside it.

    ## How to repair it
    Wait for the writer's event before copying; match layers by id.

    ## References
    vllm-project/vllm#45704, dingodb/DingoCache#231, sgl-project/sglang#33970, vllm-project/vllm#44238
    """
    return broken(trace, "KVC618", "xfer", "crc")
