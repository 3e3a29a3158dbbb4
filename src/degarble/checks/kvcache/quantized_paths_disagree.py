"""KVC628: two paths write one quantised cache in two ways."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.finding import Finding
from degarble.kvcache.declaration import WritePath
from degarble.kvcache.finding_of import finding_of
from degarble.kvcache.judge_records import path_violations
from degarble.registry import check


@check("KVC628")
def quantized_paths_disagree(cache_paths: Sequence[WritePath], cache_file: str) -> Iterator[Finding]:
    """Prefill and decode (or writer and reader) quantise the cache of one layer differently.

    ## What it looks for
    `paths` of a declaration: for each path, layer and part the transform (rotation, Hadamard), its seed, bits, group
    size and, if given, a digest of the codes that the path makes of one probe token. All paths of a layer and part
    must agree in all of it; where the settings agree the codes must be equal.

    ## Why output turns to garbage
    The cache then holds rows in two bases or scales, and the reader assumes one. Scores between a query and rows of
    the other basis are noise; with another number of bits a code is masked or shifted.

    ## What you will see
    A good first token and decay after it, or only requests that hit the prefix cache lose details: it depends on
    which path wrote which rows.

    ## How to tell it from its look-alikes
    Keys and values may differ from each other, and layers may; only paths that write the same rows must agree.

    ## How to confirm
    Give one token to both paths and compare codes. Serving with an unquantised cache makes the fault go.

    ## How to repair it
    Take transform, seed, bits and group from one place for all paths. Not done unattended.

    ## References
    Blaizzy/mlx-vlm#973, vllm-project/vllm#38479, Alberto-Codes/turboquant-vllm#79, jundot/omlx#3690
    """
    for violation in path_violations(cache_paths):
        yield finding_of(violation, cache_file)
