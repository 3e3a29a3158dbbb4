"""KVC607: position ids leave the cache index: the token sits in one place and is rotated for another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import before, broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC607", level=Level.LIVE, symptom_of=before("KVC607"))
def position_cache_index_mismatch(trace: Verdict) -> Iterator[Finding]:
    """Position ids leave the cache index: the token sits in one place and is rotated for another.

    ## What it looks for
    Every forward: position ids are the token's index in its sequence plus the constant that the request declared
    (M-RoPE), or plus the context shifts so far. A constant difference is named as the phase shift in tokens. Exact.

    ## Why output turns to garbage
    Keys are rotated for positions that they do not have, so distances between tokens are wrong.

    ## What you will see
    Good text for short prompts, confusion that grows with length, or garbage right after a restored or padded
    prompt.

    ## How to tell it from its look-alikes
    A declared constant offset is legal, also a negative one. A forward whose range itself is wrong is KVC626.

    ## How to confirm
    `--timeline` draws cache index and position id side by side.

    ## How to repair it
    Take position ids from the sequence, never from the batch's or the chunk's cache index.

    ## References
    unslothai/unsloth#3795, waybarrios/vllm-mlx#311, huggingface/transformers#43082
    """
    return broken(trace, "KVC607", "fwd")
