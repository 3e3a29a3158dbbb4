"""KVC613: an access fetches many more bytes than it uses."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.finding import Finding, Severity
from degarble.kvcache.declaration import KVDeclaration
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import waste_violations
from degarble.registry import check


@check("KVC613", severity=Severity.INFO)
def bandwidth_wasted(cache_access: KVDeclaration, cache_file: str) -> Iterator[Finding]:
    """A kernel's access to the cache uses less of what it fetches than its declared limit.

    ## What it looks for
    Each entry of `access`: a layout, a number of tokens, whether one load serves all query heads of a GQA group,
    whether whole blocks are read. Bytes are counted in sectors (32 by default) for one KV head of one sequence: useful
    over fetched. Below `min_efficiency` (0.9 unless declared) it is reported, with the best order of the same axes.

    ## Why output turns to garbage
    It does not: the answer is right and late. It is listed since the remedy, another layout, is where layouts get
    mixed up.

    ## What you will see
    Decode steps that are slower than the cache's bytes explain. A group of G query heads that each load their KV head
    again moves B·G·L·d where B·L·d would do, so 1/G of it is useful; a last block of 9 rows in 16 read as a whole
    costs 7 rows.

    ## How to tell it from its look-alikes
    Hits in the L2 cache hide repeated loads of one head: this is what is asked of memory, not what DRAM delivers.

    ## How to confirm
    Compare the bytes that a profiler counts per launch with `fetched_bytes` times heads and sequences.

    ## How to repair it
    Share the load among the group, choose a block size near a divisor of common lengths, or a layout in which a head's
    rows lie together. Not done unattended.

    ## References
    Ainslie et al., GQA (arXiv:2305.13245); NVIDIA CUDA C++ Best Practices Guide, coalesced access
    """
    for violation in waste_violations(cache_access):
        yield finding_of(violation, cache_file)
