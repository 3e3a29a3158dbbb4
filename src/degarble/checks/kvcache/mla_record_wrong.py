"""KVC631: the latent record of an MLA cache has another width or more parts than the model needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC631")
def mla_record_wrong(trace: Verdict) -> Iterator[Finding]:
    """The latent record of an MLA cache has another width or more parts than the model needs.

    ## What it looks for
    Groups of kind mla: width = kv_lora_rank + qk_rope_head_dim (512 + 64), or one of the byte records in use (656,
    584) at one byte an element; one part; no heads and no K/V axis. Exact.

    ## Why output turns to garbage
    Values are the first columns of the latent. A separate V, or another width, shifts every row.

    ## What you will see
    Noise from the first cached token on, on DeepSeek-like models only.

    ## How to tell it from its look-alikes
    A larger page stride is padding. The 656-byte record is not 576 wide, and legal at one byte an element.

    ## How to confirm
    Print the cache's shape and the record that the kernel documents.

    ## How to repair it
    Name the record explicitly instead of inferring it from a width.

    ## References
    carlushuang/gcnasm#50, LMCache/LMCache#2881, vllm-project/vllm#56893
    """
    return broken(trace, "KVC631", "meta")
