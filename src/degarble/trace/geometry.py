"""What the meta line says about the pool: block sizes, windows, ranks, and slot(p) of each cache group.

slot(p) = T[p // bs] * bs + p mod bs. Under context parallelism (cp ranks, interleave I) a column of a sharded group
stands for bs * cp positions: with o = p mod (bs * cp), rank (o // I) mod cp owns p and keeps it in row
(o // (cp * I)) * I + o mod I of its block (vLLM's decode context parallelism; research KC28). Window, recurrent and
cross groups are replicated and use p itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from degarble.trace.event import Group, Meta

MAX_BLOCK_SIZE = 1 << 16
"""Rows of one block; the largest block in use anywhere is some hundreds."""
SHARDED = ("full", "mla", "chunked")
"""Kinds whose tokens are spread over context-parallel ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupGeometry:
    """One cache group as the replay needs it."""

    g: int
    kind: str
    block_size: int
    """Rows of a block; 0 where the meta line does not say, and nothing about slots can be judged."""
    kernel_block_size: int
    num_blocks: int | None
    null_block: int | None
    pad_slot: int
    window: int | None
    """Tokens a query reads at most, itself included; None: all before it."""
    cp: int
    rank: int | None
    interleave: int
    layers: frozenset[int] | None
    parts: frozenset[str] | None

    @property
    def span(self) -> int:
        """Positions that one column of a table stands for."""
        return self.block_size * self.cp

    def row_of(self, position: int) -> int | None:
        """Row inside its block; None where another rank owns the position."""
        if self.cp == 1:
            return position % self.block_size
        o = position % self.span
        if self.rank is not None and (o // self.interleave) % self.cp != self.rank:
            return None
        return (o // (self.cp * self.interleave)) * self.interleave + o % self.interleave

    def first_read(self, position: int) -> int:
        """The lowest position that the query at `position` reads: all, a sliding window, or its own chunk."""
        if self.window is None:
            return 0
        if self.kind == "chunked":
            return position - position % self.window
        return max(0, position - self.window + 1)

    def is_block(self, block: int) -> bool:
        """Whether an id lies inside the pool."""
        return block >= 0 and (self.num_blocks is None or block < self.num_blocks)


def geometries(meta: Meta | None, rank: int | None) -> dict[int, GroupGeometry]:
    """Every declared group by its number; one plain group where none is declared."""
    if meta is None:
        return {}
    declared = meta.groups or [Group()]
    return {group.g: _geometry(meta, group, rank) for group in declared}


def _geometry(meta: Meta, group: Group, rank: int | None) -> GroupGeometry:
    block_size = group.block_size or meta.block_size or 0
    if not 0 < block_size <= MAX_BLOCK_SIZE:
        block_size = 0
    is_sharded = meta.cp > 1 and group.kind in SHARDED
    window = (group.window or meta.window) if group.kind in ("window", "chunked") else None
    return GroupGeometry(
        g=group.g,
        kind=group.kind,
        block_size=block_size,
        kernel_block_size=group.kernel_block_size or block_size,
        num_blocks=group.num_blocks if group.num_blocks is not None else meta.num_blocks,
        null_block=meta.null_block,
        pad_slot=meta.pad_slot,
        window=window if window and window > 0 else None,
        cp=meta.cp if is_sharded else 1,
        rank=rank if is_sharded else None,
        interleave=max(1, meta.interleave),
        layers=frozenset(group.layers) if group.layers else None,
        parts=frozenset(group.parts) if group.parts else None,
    )
