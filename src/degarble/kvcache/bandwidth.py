"""Useful bytes over fetched bytes of one access to the cache (KVC613).

A decode step reads, for one KV head, the rows of all tokens. Memory comes in sectors (32 bytes on NVIDIA GPUs since
Maxwell), so a run of `head_dim` elements that does not begin or end on a sector fetches more than it uses; a kernel that
reads whole blocks also fetches the rows past the length; and a kernel that does not share the KV head among the
`group_size` query heads of GQA fetches it once for each: B·L·d bytes are needed and B·G·L·d moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from degarble.errors import LayoutMismatch
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import KVLayout

SECTOR_BYTES = 32
MAX_BLOCK_ELEMENTS = 1 << 22
"""Of one head in one block: a thousand times what engines have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One read of one KV head of one sequence."""

    num_tokens: int
    group_size: int = 1
    """num_heads / num_kv_heads."""
    is_group_shared: bool = True
    """Whether one load serves all query heads of the group."""
    is_whole_block: bool = False
    """Whether rows of the last block past the length are fetched as well."""
    sector_bytes: int = SECTOR_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Bytes of one access."""

    useful_bytes: int
    fetched_bytes: int

    @property
    def efficiency(self) -> float:
        """Useful over fetched, at most 1."""
        return self.useful_bytes / self.fetched_bytes


def traffic(
    layout: KVLayout, geometry: Geometry, itemsize: int, access: Access, *, page_stride: int | None = None
) -> Traffic:
    """Count the sectors of the blocks of one sequence; blocks are taken to begin at multiples of the page stride.

    Raises LayoutMismatch for a layout without lanes, or blocks too large to count.
    """
    strides = layout.atom_strides(geometry, page_stride=page_stride)
    lane = "latent" if "latent" in layout.atoms else "head_dim"
    width = geometry.latent if lane == "latent" else geometry.head_dim
    if not {lane, f"{lane}/x"} & set(strides) or not 0 < width * geometry.block_size <= MAX_BLOCK_ELEMENTS:
        raise LayoutMismatch(
            f"layout {layout.name}: {geometry.block_size} rows of {width} lanes have no traffic to count"
        )
    full, rest = divmod(access.num_tokens, geometry.block_size)
    useful = access.num_tokens * width * itemsize
    lanes = _lane_offsets(strides, lane, width, geometry.x)
    fetched = 0
    for rows, times in ((geometry.block_size, full), (rest, 1)):
        if rows and times:
            read = geometry.block_size if access.is_whole_block else rows
            fetched += times * _sectors(strides["block_size"], lanes, read, itemsize, access.sector_bytes)
    if not access.is_group_shared:
        fetched *= access.group_size
    return Traffic(useful_bytes=useful, fetched_bytes=fetched * access.sector_bytes)


def _lane_offsets(strides: dict[str, int], lane: str, width: int, x: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    lanes = np.arange(width, dtype=np.int64)
    if lane == "head_dim" and "head_dim/x" in strides:
        return lanes // x * strides["head_dim/x"] + lanes % x * strides["x"]
    return lanes * strides[lane]


def _sectors(
    row_stride: int, lanes: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int, itemsize: int, sector: int
) -> int:
    """Distinct sectors of `rows` rows of one head."""
    first = (np.arange(rows, dtype=np.int64)[:, None] * row_stride + lanes[None, :]) * itemsize  # [rows, lanes]
    return int(np.unique(np.concatenate([first // sector, (first + itemsize - 1) // sector])).size)
