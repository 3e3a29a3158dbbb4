"""The blocks of a pool: reference counts, the free list, and blocks that wait for an open step to end.

A block is in exactly one of three places: held (ref_count ≥ 1), free, or waiting. It waits if its last holder let go
while a step was open that may still read or write it (KVC617); it becomes free when the steps open at that moment have
ended. Free blocks are taken in the order in which they became free, so that cached content lives as long as it can.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from degarble.errors import BlockMisuse, OutOfBlocks

NULL_BLOCK = -1
"""Stands in a block table where a block was evicted; never an index, never held."""


class BlockPool:
    """Who holds which block. Ids in `reserved` (a trash block, a null block) are never handed out."""

    def __init__(self, num_blocks: int, reserved: Iterable[int] = ()) -> None:
        if num_blocks < 1:
            raise BlockMisuse(f"a pool needs at least one block, found {num_blocks}")
        self.num_blocks = num_blocks
        self.reserved = frozenset(reserved)
        if any(not 0 <= block < num_blocks for block in self.reserved):
            raise BlockMisuse(f"reserved blocks {sorted(self.reserved)} are not all in [0, {num_blocks})")
        self.ref_count = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(
            block for block in range(num_blocks) if block not in self.reserved
        )
        self._waiting: dict[int, int] = {}
        self._busy: dict[int, int] = {}
        """Block -> last step that may still use it for a holder that has let go."""
        self._open_steps: set[int] = set()
        self._last_step = 0

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free)

    @property
    def num_waiting(self) -> int:
        """Blocks that nobody holds and an open step may still touch."""
        return len(self._waiting)

    def is_busy(self, block: int) -> bool:
        """Whether an open step may still read it for somebody who let go, so that a present holder must not write."""
        return block in self._busy

    def take(self, count: int) -> list[int]:
        """The `count` blocks that were free for longest, each held once. Raises OutOfBlocks and changes nothing."""
        if count > len(self._free):
            raise OutOfBlocks(f"{count} blocks wanted, {len(self._free)} of {self.num_blocks} free")
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self.ref_count[block] = 1
        return taken

    def hold(self, blocks: Sequence[int]) -> None:
        """One more holder each; a free or waiting block with cached content comes back so."""
        for block in blocks:
            if not 0 <= block < self.num_blocks or block in self.reserved:
                raise BlockMisuse(f"block {block} cannot be held: the pool has [0, {self.num_blocks})")
            if self.ref_count[block] == 0:
                self._free.pop(block, None)
                self._waiting.pop(block, None)
            self.ref_count[block] += 1

    def release(self, blocks: Sequence[int]) -> None:
        """One holder less each. Raises BlockMisuse for a block nobody holds: a double free."""
        for block in blocks:
            if not 0 <= block < self.num_blocks or self.ref_count[block] < 1:
                raise BlockMisuse(f"block {block} is freed, and nobody holds it")
            self.ref_count[block] -= 1
            if self._open_steps:
                self._busy[block] = self._last_step
            if self.ref_count[block] == 0:
                if self._open_steps:
                    self._waiting[block] = self._last_step
                else:
                    self._free[block] = None

    def begin_step(self) -> int:
        """A step that may touch any block held now. Steps may overlap (asynchronous scheduling)."""
        self._last_step += 1
        self._open_steps.add(self._last_step)
        return self._last_step

    def end_step(self, step: int) -> None:
        """Blocks that waited for this step only become free. Raises BlockMisuse if it is not open."""
        if step not in self._open_steps:
            raise BlockMisuse(f"step {step} ends, and is not open")
        self._open_steps.remove(step)
        oldest = min(self._open_steps, default=self._last_step + 1)
        self._busy = {block: last for block, last in self._busy.items() if last >= oldest}
        for block in [block for block, last in self._waiting.items() if last < oldest]:
            del self._waiting[block]
            self._free[block] = None

    def problems(self) -> list[str]:
        """Broken invariants of the pool alone; empty when it is sound."""
        found: list[str] = []
        for block, count in enumerate(self.ref_count):
            places = (count > 0, block in self._free, block in self._waiting, block in self.reserved)
            if count < 0 or sum(places) != 1:
                found.append(f"block {block}: ref_count {count}, held, free, waiting, reserved = {places}")
        strays = [block for block in (*self._free, *self._waiting) if not 0 <= block < self.num_blocks]
        return found + [f"block {block} is free and not of this pool" for block in strays]
