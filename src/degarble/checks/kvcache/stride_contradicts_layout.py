"""KVC601: the strides of a cache tensor are not those of the layout it declares."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from degarble.checks.kvcache.broken import broken
from degarble.finding import Finding
from degarble.registry import Level, check

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict


@check("KVC601", level=Level.LIVE)
def stride_contradicts_layout(trace: Verdict) -> Iterator[Finding]:
    """The strides of a cache tensor are not those of the layout it declares.

    ## What it looks for
    Every group of the meta line with axes, shape and strides. Axes inside a block must be dense in the order of the
    axes (NHD, HND, head-major, latent). Where `layout` (NHD, LBHNC, …) or `stride_order` names another order, the
    strides must be of that one; where nothing is named, they may be those of any known layout of the same axes. The
    page stride, and strides outside it, may be larger (padding, pages of all layers), never smaller: then pages
    overlap. Extents must be the declared numbers of blocks, rows and dimensions. Exact.

    ## Why output turns to garbage
    Writer and reader compute the address of one element with different formulas. Of 128 cells of an NHD cache read
    as HND, two are right by luck.

    ## What you will see
    Noise or repetition from the first cached token on, for every request.

    ## How to tell it from its look-alikes
    A larger page stride is padding and legal. So is a permuted view: vLLM declares a shape in logical order over
    strides of another, and kernels take the strides. Only a kernel that was told an order (`layout`) and gets
    strides of another reads wrong elements. The often quoted `stride[0] = head_dim × block_size × num_blocks` holds
    for head-major storage only. A shape that fits two layouts is KVC612.

    ## How to confirm
    Write sentinel values through the writer's formula and read them back through the reader's.

    ## How to repair it
    Take strides from the tensor instead of computing them from its shape. It is the engine's code, so nothing is
    repaired here.

    ## References
    vllm-project/vllm#49012, LMCache/LMCache#2826, LMCache/LMCache#4772
    """
    return broken(trace, "KVC601", "meta")
