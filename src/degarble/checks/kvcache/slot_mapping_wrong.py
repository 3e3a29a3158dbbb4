"""KVC602: a token is written to another slot than its block table says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC602", level=Level.LIVE, symptom_of=before("KVC602"))
def slot_mapping_wrong(trace: Verdict) -> Iterator[Finding]:
    """A token is written to another slot than its block table says.

    ## What it looks for
    Every slot of every forward: slot(p) = block_table[p // block_size] × block_size + p mod block_size, one slot
    for each token. The table row as the device saw it, where the trace has it, must be the host's over the columns
    that are read, in logical or kernel blocks. Where the slots are those of positions k tokens away, k is named.
    Exact.

    ## Why output turns to garbage
    The token's keys land in a row that belongs to another position or to another request, and its own row keeps
    what was there before. Both requests then attend to foreign content.

    ## What you will see
    One request, or its innocent neighbour, drifts off topic; the boundary of the damage is a block boundary.

    ## How to tell it from its look-alikes
    Slots outside the pool or −1 are KVC603, those of another rank KVC622, those computed with the kernel's block
    size KVC624. Padding rows of graphs write the pad slot and are no tokens.

    ## How to confirm
    Recompute the slots of the named forward by hand from the table that the finding quotes.

    ## How to repair it
    Compare the slot kernel with the formula at the named position; look for a table row of another width or an
    older copy on the device.

    ## References
    vllm-project/vllm#53982, vllm-project/vllm#51017, ericcurtin/vllm-vulkan#78
    """
    return broken(trace, "KVC602", "fwd")
