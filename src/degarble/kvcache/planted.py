"""Faults planted in the block manager, one class each: what `kv stress --plant NAME` and the tests must find.

Each is the manager with one step done wrong, as a public engine once did it (issue numbers beside them). `patience` lets
the first so many occasions pass, so that the fault comes at a moment that the seed decides.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Any, ClassVar

from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.block_state import BlockCopy
from degarble.kvcache.namespace import PLAIN, Namespace
from degarble.kvcache.prefix_cache import matching_blocks
from degarble.kvcache.sequence import Sequence


class FaultyManager(BlockManager):
    """A manager that keeps its patience for a while."""

    rules: ClassVar[frozenset[str]] = frozenset()
    """What a run may call the fault."""
    needs: ClassVar[str] = ""
    """`window` or `host`, where the fault needs one."""
    patience = 0

    def _is_due(self) -> bool:
        self.patience -= 1
        return self.patience < 0


class SlotOffByOne(FaultyManager):
    """Slots are one too far (vllm-project/vllm#51017)."""

    rules = frozenset({"KVC602", "KVC603"})

    def _slots(self, sequence: Sequence, start: int, end: int) -> list[int]:
        slots = super()._slots(sequence, start, end)
        return [slot + 1 for slot in slots] if self._is_due() else slots


class PaddingSlot(FaultyManager):
    """The last token of a step gets the padding id -1 (vllm-project/vllm#43810)."""

    rules = frozenset({"KVC603"})

    def _slots(self, sequence: Sequence, start: int, end: int) -> list[int]:
        slots = super()._slots(sequence, start, end)
        return [*slots[:-1], -1] if self._is_due() else slots


class DoubleFree(FaultyManager):
    """A block that others still hold goes to the free list (LMCache/LMCache#5005)."""

    rules = frozenset({"KVC605"})

    def _free_columns(self, sequence: Sequence, first: int) -> None:
        blocks = sequence.block_table[max(first, sequence.num_evicted) :]
        super()._free_columns(sequence, first)
        for block in blocks:
            if self.pool.ref_count[block] > 0 and self._is_due():
                self.pool.ref_count[block] -= 1
                if self.pool.ref_count[block] == 0:
                    self.pool._free[block] = None
                return


class StaleHash(FaultyManager):
    """A block keeps its key when it is handed out again (GeeeekExplorer/nano-vllm#163)."""

    rules = frozenset({"KVC605", "KVC604", "KVC608"})

    def _take(self, count: int) -> list[int]:
        return self.pool.take(count) if self._is_due() else super()._take(count)


class MissedCopy(FaultyManager):
    """A shared block is written without a copy (xLLM-AI/xllm#1984)."""

    rules = frozenset({"KVC604"})

    def _reserve(self, sequence: Sequence, start: int, end: int) -> list[BlockCopy]:
        column = sequence.column_of(start)
        is_shared = column < len(sequence.block_table) and self.pool.ref_count[sequence.block_table[column]] > 1
        if not is_shared or not self._is_due():
            return super()._reserve(sequence, start, end)
        sequence.block_table += self._take(sequence.num_columns(end) - len(sequence.block_table))
        return []


class ShortCopy(FaultyManager):
    """A copy on write loses its last row."""

    rules = frozenset({"KVC606", "KVC617"})

    def _copy_on_write(self, sequence: Sequence, column: int, target: int, num_rows: int) -> list[BlockCopy]:
        copies = super()._copy_on_write(sequence, column, target, num_rows)
        is_due = bool(copies) and self._is_due()
        return [BlockCopy(copy.source, copy.target, copy.num_rows - is_due) for copy in copies]


class WindowEarly(FaultyManager):
    """The window evicts by scheduled tokens, one block too early (vllm-project/vllm-ascend#13501)."""

    rules = frozenset({"KVC615", "KVC605"})
    needs = "window"

    def _evict_window(self, sequence: Sequence) -> None:
        window = self.window
        assert window is not None
        if self._is_due():
            self.window = max(1, window - self.block_size)
        super()._evict_window(sequence)
        self.window = window


class RollbackShort(FaultyManager):
    """One rejected draft stays (lablup/mlxcel#994)."""

    rules = frozenset({"KVC616"})

    def _settle_drafts(self, sequence: Sequence, new_ids: Items[int]) -> None:
        wrong = sequence.token_ids[len(sequence.token_ids) - sequence.num_drafts :][: len(new_ids)]
        has_rejected = len(new_ids) <= sequence.num_drafts
        super()._settle_drafts(sequence, [*wrong, new_ids[-1]] if has_rejected and self._is_due() else new_ids)


class RollbackLong(FaultyManager):
    """One accepted draft goes with the rejected ones (lablup/mlxcel#994)."""

    rules = frozenset({"KVC616"})

    def _settle_drafts(self, sequence: Sequence, new_ids: Items[int]) -> None:
        if len(new_ids) > 1 and self._is_due():
            new_ids = [*new_ids[:-2], new_ids[-1]]
        super()._settle_drafts(sequence, new_ids)


class SaltIgnored(FaultyManager):
    """The key leaves out adapter, salt and images (vllm-project/vllm#44701, #30931)."""

    rules = frozenset({"KVC608"})

    def open(self, request: str, token_ids: Items[int], namespace: Namespace = PLAIN) -> int:
        """Open with the plain namespace."""
        return super().open(request, token_ids, PLAIN if self._is_due() else namespace)


class FullHit(FaultyManager):
    """A fully cached prompt leaves nothing to compute (GeeeekExplorer/nano-vllm#144)."""

    rules = frozenset({"KVC625"})

    def _take_cached(self, sequence: Sequence) -> int:
        ids = sequence.token_ids
        edges = range(0, len(ids) + 1, self.block_size) if sequence.edges is None else sequence.edges
        found = matching_blocks(self.prefix_cache, sequence.namespace, ids, edges)
        cached = super()._take_cached(sequence)
        if edges[len(found)] == len(ids) and self._is_due():
            sequence.num_computed = sequence.num_scheduled = len(ids)
            return len(ids)
        return cached


class ReuseInFlight(FaultyManager):
    """Blocks are free at once although a step still reads them (vllm-project/vllm#52360)."""

    rules = frozenset({"KVC617"})

    def finish(self, request: str, *, is_abort: bool = False) -> None:
        """Finish without waiting for open steps."""
        super().finish(request, is_abort=is_abort)
        if self._is_due():
            for block in list(self.pool._waiting):
                del self.pool._waiting[block]
                self.pool._free[block] = None
                self.pool._free.move_to_end(block, last=False)


class LostBlock(FaultyManager):
    """The tail of a request is never freed (sgl-project/sglang#31616)."""

    rules = frozenset({"KVC605"})

    def _free_columns(self, sequence: Sequence, first: int) -> None:
        if len(sequence.block_table) - max(first, sequence.num_evicted) > 0 and self._is_due():
            sequence.block_table.pop()
        super()._free_columns(sequence, first)


class SwapPermuted(FaultyManager):
    """A swapped request comes back with its first and last block exchanged."""

    rules = frozenset({"KVC606", "KVC608"})
    needs = "host"

    def resume(self, request: str) -> list[tuple[int, int]]:
        """Resume, with the pairs mixed up."""
        pairs = super().resume(request)
        if len(pairs) > 1 and self._is_due():
            (a, b), (c, d) = pairs[0], pairs[-1]
            return [(a, d), *pairs[1:-1], (c, b)]
        return pairs


PLANTED: dict[str, type[FaultyManager]] = {
    "slot-off-by-one": SlotOffByOne,
    "padding-slot": PaddingSlot,
    "double-free": DoubleFree,
    "stale-hash": StaleHash,
    "missed-copy": MissedCopy,
    "short-copy": ShortCopy,
    "window-early": WindowEarly,
    "rollback-short": RollbackShort,
    "rollback-long": RollbackLong,
    "salt-ignored": SaltIgnored,
    "full-hit": FullHit,
    "reuse-in-flight": ReuseInFlight,
    "lost-block": LostBlock,
    "swap-permuted": SwapPermuted,
}
"""By the name that `--plant` takes."""


def faulty(name: str, patience: int) -> Callable[..., BlockManager]:
    """The manager with one planted fault that waits for its moment."""

    def build(*arguments: Any, **options: Any) -> BlockManager:
        manager = PLANTED[name](*arguments, **options)
        manager.patience = patience
        return manager

    return build
