"""The state of a block manager and the steps its calls are made of: reserve, copy on write, publish, evict, free."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

from degarble.errors import BlockMisuse
from degarble.kvcache.block import NULL_BLOCK, BlockPool
from degarble.kvcache.isolation import NO_ISOLATION, Isolation
from degarble.kvcache.prefix_cache import PrefixCache, matching_blocks
from degarble.kvcache.sequence import Phase, Sequence

Observer = Callable[[str, dict[str, Any]], None]
"""Called with the name and the fields of an event of the trace schema."""


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Rows [0, num_rows) of a block, to be copied before the step writes; several in the order they are given."""

    source: int
    target: int
    num_rows: int


class BlockState:
    """What the manager knows, and its private steps. `block_manager.py` has the calls."""

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        window: int | None = None,
        is_prefix_cached: bool = True,
        isolation: Isolation = NO_ISOLATION,
        trash_block: int | None = None,
        num_host_blocks: int = 0,
        observer: Observer | None = None,
    ) -> None:
        if block_size < 1 or (window is not None and window < 1):
            raise BlockMisuse(f"block_size {block_size} and window {window} must be at least 1")
        self.block_size = block_size
        self.window = window
        self.is_prefix_cached = is_prefix_cached
        self.isolation = isolation
        self.trash_block = trash_block
        self.pool = BlockPool(num_blocks, () if trash_block is None else (trash_block,))
        self.host_pool = BlockPool(num_host_blocks) if num_host_blocks else None
        self.prefix_cache = PrefixCache()
        self.sequences: dict[str, Sequence] = {}
        self._observe = observer

    def observe(self, observer: Observer | None) -> None:
        """Tell events to somebody else from here on."""
        self._observe = observer

    def sequence(self, request: str) -> Sequence:
        """The state of a request. Raises BlockMisuse for an unknown one."""
        try:
            return self.sequences[request]
        except KeyError:
            raise BlockMisuse(f"no request is called {request!r}") from None

    def _running(self, request: str) -> Sequence:
        sequence = self.sequence(request)
        if sequence.phase is not Phase.RUNNING:
            raise BlockMisuse(f"request {request!r} is {sequence.phase}")
        return sequence

    def _emit(self, event: str, **fields: Any) -> None:
        if self._observe is not None:
            self._observe(event, fields)

    def _counts(self, blocks: Items[int]) -> list[int]:
        return [self.pool.ref_count[block] for block in blocks]

    def _withdraw(self, block: int) -> None:
        entry = self.prefix_cache.withdraw(block)
        if entry is not None:
            self._emit("evict", h=[entry.key.hex()], b=[block])

    def _take(self, count: int) -> list[int]:
        """Free blocks, which lose their cached content."""
        blocks = self.pool.take(count)
        for block in blocks:
            self._withdraw(block)
        return blocks

    def _take_cached(self, sequence: Sequence) -> int:
        """Share the longest cached prefix, but leave one token to compute (KVC625)."""
        if not self.is_prefix_cached:
            return 0
        ids = sequence.token_ids
        edges = range(0, len(ids) + 1, self.block_size) if sequence.edges is None else sequence.edges
        found = matching_blocks(self.prefix_cache, sequence.namespace, ids, edges)
        num_cached = min(edges[len(found)], len(ids) - 1)
        found = found[: sequence.num_columns(num_cached)]
        if not found:
            return 0
        blocks = [block for _, block in found]
        sequence.keys = [key for at, (key, _) in enumerate(found) if sequence.end_of(at) <= num_cached]
        sequence.num_computed = sequence.num_scheduled = num_cached
        self._emit("hit", req=sequence.request, h=[key.hex() for key, _ in found], b=blocks, tok=num_cached)
        self._hold(sequence, 0, blocks)
        self._evict_window(sequence)
        return num_cached

    def _hold(self, sequence: Sequence, at: int, blocks: list[int]) -> None:
        """Columns from `at` on are blocks that exist already."""
        self.pool.hold(blocks)
        sequence.block_table[at:] = blocks
        if blocks:
            self._emit("ref", req=sequence.request, b=blocks, at=at, rc=self._counts(blocks))

    def _reserve(self, sequence: Sequence, start: int, end: int) -> list[BlockCopy]:
        """Blocks for positions [start, end); the block that `start` falls into must be the sequence's own."""
        table = sequence.block_table
        column = sequence.column_of(start)
        is_inside = column < len(table)
        is_shared = is_inside and (self.pool.ref_count[table[column]] > 1 or self.pool.is_busy(table[column]))
        blocks = self._take(sequence.num_columns(end) - len(table) + is_shared)
        copies: list[BlockCopy] = []
        if is_shared:
            copies = self._copy_on_write(sequence, column, blocks.pop(), start - sequence.start_of(column))
        elif is_inside:
            self._withdraw(table[column])
        if blocks:
            self._emit("alloc", req=sequence.request, b=blocks, at=len(table), rc=[1] * len(blocks))
            table += blocks
        return copies

    def _copy_on_write(self, sequence: Sequence, column: int, target: int, num_rows: int) -> list[BlockCopy]:
        source = sequence.block_table[column]
        self.pool.release([source])
        sequence.block_table[column] = target
        self._emit("free", req=sequence.request, b=[source], at=column, rc=self._counts([source]))
        self._emit("alloc", req=sequence.request, b=[target], at=column, rc=[1])
        if num_rows == 0:
            return []
        self._emit("copy", req=sequence.request, src=source, dst=target, rows=[0, num_rows])
        return [BlockCopy(source, target, num_rows)]

    def _slots(self, sequence: Sequence, start: int, end: int) -> list[int]:
        return sequence.slots(start, end)

    def _publish(self, sequence: Sequence) -> None:
        """Blocks that are full (or ended by policy) and computed become findable."""
        if not self.is_prefix_cached:
            return
        column = len(sequence.keys)
        num_closed = len(sequence.token_ids) if sequence.edges is None else sequence.edges[-1]
        while sequence.end_of(column) <= min(sequence.num_computed, num_closed):
            start, end = sequence.start_of(column), sequence.end_of(column)
            parent = sequence.keys[-1] if sequence.keys else sequence.namespace.root
            ids, extra = tuple(sequence.token_ids[start:end]), sequence.namespace.extra(start, end)
            block = sequence.block_table[column]
            key, is_new = self.prefix_cache.publish(block, parent, ids, extra)
            if is_new and self._observe is not None:
                above = sequence.keys[-1].hex() if sequence.keys else None
                tags = sequence.namespace.tags()
                self._emit("store", req=sequence.request, h=[key.hex()], parent=above, b=[block], ids=ids, ns=tags)
            sequence.keys.append(key)
            column += 1

    def _evict_window(self, sequence: Sequence) -> None:
        """Free columns that no computed-or-later query reads: all before num_computed - window + 1 (KVC615)."""
        if self.window is None:
            return
        first_read = sequence.num_computed - self.window + 1
        column = sequence.num_evicted
        while column < len(sequence.block_table) and sequence.end_of(column) <= first_read:
            block = sequence.block_table[column]
            self.pool.release([block])
            sequence.block_table[column] = NULL_BLOCK
            self._emit("free", req=sequence.request, b=[block], at=column, rc=self._counts([block]))
            column += 1
        sequence.num_evicted = column

    def _free_columns(self, sequence: Sequence, first: int) -> None:
        """Let go of all columns from `first` on, the last first: a prefix stays cached longer than its tail."""
        at = max(first, sequence.num_evicted)
        blocks = sequence.block_table[at:]
        del sequence.block_table[first:]
        if blocks:
            self.pool.release(blocks[::-1])
            self._emit("free", req=sequence.request, b=blocks, at=at, rc=self._counts(blocks))

    def _settle_drafts(self, sequence: Sequence, new_ids: Items[int]) -> None:
        """Keep the accepted drafts and the token sampled after them; rows and blocks past them go (KVC616)."""
        drafts = sequence.token_ids[len(sequence.token_ids) - sequence.num_drafts :]
        accepted = list(new_ids[:-1])
        if not new_ids or drafts[: len(accepted)] != accepted:
            raise BlockMisuse(f"{sequence.request!r}: accepted {accepted} is no beginning of the drafts {drafts}")
        rejected = len(drafts) - len(accepted)
        sequence.truncate(len(sequence.token_ids) - rejected)
        sequence.num_computed = sequence.num_scheduled = sequence.num_scheduled - rejected
        sequence.num_drafts = 0
        at = len(sequence.token_ids) - len(accepted)
        self._emit("rollback", req=sequence.request, len=sequence.num_computed, at=at, ids=list(new_ids))
        self._free_columns(sequence, sequence.num_columns(sequence.num_computed))
        sequence.extend(new_ids[-1:])

    def _drop_in_flight(self, sequence: Sequence) -> None:
        """Forget what is scheduled and not computed."""
        sequence.truncate(len(sequence.token_ids) - sequence.num_drafts)
        sequence.num_drafts = 0
        sequence.num_scheduled = sequence.num_computed
        self._free_columns(sequence, sequence.num_columns(sequence.num_computed))
