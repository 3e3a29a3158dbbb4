"""Which layouts give one shape: a shape that two layouts fit cannot tell them apart (KVC612).

The number of blocks is left free, since an observer knows it from the shape only. Readings that put the same element
at the same place are one: a merged axis is not a second reading of the two axes it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from degarble.errors import LayoutMismatch
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, KVLayout


def readings(shape: Sequence[int], geometry: Geometry, *, known_num_blocks: bool = False) -> tuple[KVLayout, ...]:
    """Layouts of the catalogue that fit `shape` with the head count, head size and block size given."""
    found: list[KVLayout] = []
    for layout in CATALOGUE:
        if len(layout.axes) != len(shape):
            continue
        at = layout.axes.index("num_blocks")
        guess = geometry if known_num_blocks else replace(geometry, num_blocks=max(1, shape[at]))
        try:
            expected = layout.shape(guess)
        except LayoutMismatch:
            continue
        if expected == tuple(shape):
            found.append(layout)
    return tuple(found)


def why_ambiguous(geometry: Geometry, fitting: Sequence[KVLayout]) -> str:
    """The coincidence of sizes that lets several layouts fit."""
    sizes = {
        "num_kv_heads": geometry.num_kv_heads,
        "block_size": geometry.block_size,
        "head_dim": geometry.head_dim,
        "num_blocks": geometry.num_blocks,
        "K and V": 2,
    }
    equal = [
        f"{a} = {b} = {sizes[a]}"
        for place, a in enumerate(sizes)
        for b in list(sizes)[place + 1 :]
        if sizes[a] == sizes[b]
    ]
    return "; ".join(equal) or f"{len(fitting)} orders of the same axes"
