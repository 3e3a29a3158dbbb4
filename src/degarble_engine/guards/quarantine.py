"""Blocks whose content is in doubt: nobody finds them by their prefix, and they are zeroed before anybody reads them."""

from __future__ import annotations

from collections.abc import Iterable

from degarble.kvcache.block_manager import BlockManager
from degarble_engine.engine.pool import PagedKVCache


class Quarantine:
    """A block stays in it until nobody holds it, and is scrubbed then."""

    def __init__(self, manager: BlockManager, cache: PagedKVCache) -> None:
        self._manager, self._cache = manager, cache
        self.blocks: set[int] = set()
        self.num_scrubbed = 0

    def admit(self, blocks: Iterable[int]) -> None:
        """Take blocks in, and out of the prefix cache with all that was computed on top of them."""
        found = list(blocks)
        known = self._manager.prefix_cache.with_continuations(found)
        self._manager.withdraw(found)
        self.blocks.update(found, known)

    def scrub(self) -> None:
        """Zero what nobody holds. Called between steps, before anything is handed out again."""
        if not self.blocks:
            return
        count = self._manager.pool.ref_count
        free = [block for block in self.blocks if count[block] == 0]
        if free:
            self._cache.scrub(free)
            self.num_scrubbed += len(free)
            self.blocks.difference_update(free)
