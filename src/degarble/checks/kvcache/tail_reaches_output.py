"""KVC620: what lies in rows that nobody may read changes the output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.finding import Finding
from degarble.kvcache.declaration import PoisonRecord
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import poison_violations
from degarble.registry import check


@check("KVC620")
def tail_reaches_output(cache_poison: Sequence[PoisonRecord], cache_file: str) -> Iterator[Finding]:
    """Rows past a sequence's length, or of a null or trash block, change the output.

    ## What it looks for
    `poison` of a declaration: runs of one forward pass with every unused row replaced by NaN or by 1e4, against the
    run without. The outputs must be bit-identical; any difference is the fault, proven. `PagedKVCache.fill_unused`
    puts the poison in.

    ## Why output turns to garbage
    The last block of a sequence has rows past its end, and padded batches read a null block. A kernel that masks
    scores but not values multiplies 0 with what lies there: 0 · NaN is NaN, and one NaN row makes a whole tile NaN. Old
    finite values leak where the mask is off by one.

    ## What you will see
    `!!!!` or empty answers (NaN logits choose id 0), at random, mostly in small pools where blocks are reused soon;
    or greedy runs of one prompt that differ.

    ## How to tell it from its look-alikes
    A kernel that sums in another order for another length differs too: compare runs of equal length, only the poison
    changed. A stale read (KVC606) concerns rows inside the length.

    ## How to confirm
    Zero all blocks when they are handed out: if the fault goes, this is it.

    ## How to repair it
    Mask values, not only scores, or zero blocks on allocation. Not done unattended: it is the kernel's code.

    ## References
    Dao-AILab/flash-attention#2374, Dao-AILab/flash-attention#1745, huggingface/transformers#46765,
    vllm-project/vllm#53856
    """
    for violation in poison_violations(cache_poison):
        yield finding_of(violation, cache_file)
