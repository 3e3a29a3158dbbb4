"""The cache's view of one request: its tokens, how far they are computed, and the blocks that hold them.

token_ids     known tokens, drafts at the end      [0 ………………… len(token_ids))
num_computed  rows that finished steps wrote        [0 …… num_computed)
num_scheduled rows with blocks, perhaps in flight   [0 ……………… num_scheduled)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence as Items
from enum import StrEnum

from degarble.kvcache.block import NULL_BLOCK
from degarble.kvcache.isolation import Isolation
from degarble.kvcache.namespace import Namespace
from degarble.kvcache.slot_mapping import slot_mapping, slot_of


class Phase(StrEnum):
    """Whether a request holds blocks of the device."""

    RUNNING = "running"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"


class Sequence:
    """Changed by the block manager only."""

    __slots__ = (
        "block_size",
        "block_table",
        "edges",
        "host_blocks",
        "isolation",
        "keys",
        "namespace",
        "num_computed",
        "num_drafts",
        "num_evicted",
        "num_scheduled",
        "phase",
        "request",
        "token_ids",
    )

    def __init__(
        self, request: str, token_ids: Items[int], namespace: Namespace, block_size: int, isolation: Isolation
    ) -> None:
        self.request = request
        self.token_ids = list(token_ids)
        self.namespace = namespace
        self.block_size = block_size
        self.isolation = isolation
        self.edges: list[int] | None = isolation.edges(token_ids, block_size) if isolation.is_active else None
        """Where blocks begin; None where they begin at multiples of block_size."""
        self.block_table: list[int] = []
        self.keys: list[bytes] = []
        """Keys of the leading blocks that are full and computed."""
        self.host_blocks: list[int] = []
        """What is swapped out, from column num_evicted on."""
        self.num_computed = self.num_scheduled = self.num_drafts = self.num_evicted = 0
        self.phase = Phase.RUNNING

    @property
    def num_in_flight(self) -> int:
        """Tokens that a step computes at the moment."""
        return self.num_scheduled - self.num_computed

    def start_of(self, column: int) -> int:
        """First position of a block."""
        return column * self.block_size if self.edges is None else self.edges[column]

    def end_of(self, column: int) -> int:
        """First position after a block; where it may still grow, as if it were full."""
        if self.edges is None:
            return (column + 1) * self.block_size
        return self.edges[column + 1] if column + 1 < len(self.edges) else self.edges[column] + self.block_size

    def column_of(self, position: int) -> int:
        """The block that holds a position."""
        if self.edges is None:
            return position // self.block_size
        return bisect_right(self.edges, position) - 1

    def num_columns(self, num_tokens: int) -> int:
        """Blocks for the first `num_tokens` tokens."""
        return 0 if num_tokens == 0 else self.column_of(num_tokens - 1) + 1

    def slots(self, start: int, end: int) -> list[int]:
        """Slots of positions [start, end). Raises BlockMisuse for one without a block."""
        if self.edges is None:
            return slot_mapping(self.block_table, start, end, self.block_size)
        found: list[int] = []
        for position in range(start, end):
            column = self.column_of(position)
            found.append(
                slot_of(self.block_table, column * self.block_size, self.block_size) + position - self.edges[column]
            )
        return found

    def extend(self, ids: Items[int]) -> None:
        """More known tokens."""
        self.token_ids += ids
        if self.edges is not None:
            self._grow_edges(len(self.token_ids) - len(ids))

    def truncate(self, num_tokens: int) -> None:
        """Forget tokens from the end."""
        del self.token_ids[num_tokens:]
        if self.edges is not None:
            while self.edges[-1] > num_tokens:
                self.edges.pop()

    def _grow_edges(self, first: int) -> None:
        assert self.edges is not None
        ending = self.isolation.ending_ids
        for position in range(first, len(self.token_ids)):
            if position + 1 - self.edges[-1] == self.block_size or self.token_ids[position] in ending:
                self.edges.append(position + 1)

    def live_blocks(self) -> list[int]:
        """Blocks it holds, evicted columns left out."""
        return [block for block in self.block_table if block != NULL_BLOCK]
