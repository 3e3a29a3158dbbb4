"""How fast this machine gathers the rows of one KV head from scattered blocks: the measured side of KVC613.

Counted sectors are an upper bound of what a layout can lose. What it loses here is measured: one head after the other of one
sequence is read through NumPy, on one core, and useful bytes over the median time are the rate. Two layouts with equal
counts can differ, since runs that lie together are read faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from degarble.errors import LayoutMismatch
from degarble.kvcache.bandwidth import Access, traffic
from degarble.kvcache.declaration import KVDeclaration, layout_of
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import KVLayout

MAX_BYTES = 64 << 20
"""Of the pool that is gathered from; a larger one is cut to fewer blocks."""
MAX_HEADS = 8
REPEATS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathered:
    """One measurement."""

    useful_bytes: int
    seconds: float
    """Median of the repeats."""

    @property
    def gigabytes_a_second(self) -> float:
        """Useful bytes over time."""
        return self.useful_bytes / self.seconds / 1e9


def gather(layout: KVLayout, geometry: Geometry, itemsize: int, num_tokens: int, *, seed: int = 0) -> Gathered:
    """Gather `num_tokens` rows of each head. Raises LayoutMismatch for a layout without blocks, rows and lanes of their own."""
    lane = "latent" if "latent" in layout.axes else "head_dim"
    if not {"num_blocks", "block_size", lane} <= set(layout.axes):
        raise LayoutMismatch(f"layout {layout.name}: no gather of axes {list(layout.axes)}")
    if itemsize not in (1, 2, 4, 8):
        raise LayoutMismatch(f"layout {layout.name}: no machine number has {itemsize} bytes")
    needed = -(-num_tokens // geometry.block_size)
    one_block = max(1, int(np.prod(layout.shape(replace(geometry, num_blocks=1)), dtype=np.int64)) * itemsize)
    num_blocks = min(geometry.num_blocks, MAX_BYTES // one_block)
    if num_blocks < needed:
        raise LayoutMismatch(f"{num_tokens} tokens need {needed} blocks, {num_blocks} of {one_block} bytes are there")
    size = replace(geometry, num_blocks=num_blocks)
    pool = np.ones(layout.shape(size), dtype=np.dtype(f"u{itemsize}"))
    order = ["num_blocks", "block_size", "num_kv_heads", lane]
    kept = [axis for axis in layout.axes if axis in order]
    view = pool[tuple(slice(None) if axis in order else 0 for axis in layout.axes)]  # one layer, and K alone
    view = view.transpose([kept.index(axis) for axis in order if axis in kept])
    if view.ndim == 3:
        view = view[:, :, None]  # [num_blocks, block_size, num_kv_heads, lanes]
    table = np.random.default_rng(seed).permutation(num_blocks)[:needed]
    blocks = np.repeat(table, size.block_size)[:num_tokens]
    rows = np.tile(np.arange(size.block_size), needed)[:num_tokens]
    heads = min(view.shape[2], MAX_HEADS)
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for head in range(heads):
            view[blocks, rows, head].sum(dtype=np.uint64)
        seconds.append(time.perf_counter() - start)
    useful = heads * num_tokens * view.shape[-1] * itemsize
    return Gathered(useful_bytes=useful, seconds=max(statistics.median(seconds), 1e-9))


def told(declaration: KVDeclaration) -> Iterator[str]:
    """A line for each declared access: useful over fetched bytes as counted, and the gather of the same rows as measured."""
    groups = {group.g: group for group in reversed(declaration.groups)}
    for at, one in enumerate(declaration.access or ()):
        group = groups.get(one.g)
        layout = None if group is None else layout_of(group)
        if group is None or layout is None:
            yield f"access[{at}]: not measured: group {one.g} is not declared, or has no layout"
            continue
        heads, kv_heads = declaration.num_heads or 1, declaration.num_kv_heads or 1
        access = Access(
            num_tokens=one.num_tokens,
            group_size=max(1, heads // kv_heads),
            is_group_shared=one.is_group_shared,
            is_whole_block=one.is_whole_block,
            sector_bytes=one.sector_bytes,
        )
        try:
            geometry = declaration.geometry(group)
            counted = traffic(layout, geometry, group.itemsize or 2, access)
            measured = gather(layout, geometry, group.itemsize or 2, one.num_tokens)
        except LayoutMismatch as error:
            yield f"access[{at}]: not measured: {error}"
            continue
        yield (
            f"access[{at}]: {layout.name}, blocks of {geometry.block_size}, group of {access.group_size}, {one.num_tokens} "
            f"tokens: {counted.useful_bytes} of {counted.fetched_bytes} fetched bytes are used ({counted.efficiency:.1%}); this "
            f"machine gathers {measured.gigabytes_a_second:.2f} GB/s of useful bytes"
        )
