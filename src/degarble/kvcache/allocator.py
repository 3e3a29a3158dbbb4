"""What the stress test asks of an allocator, and the package's own manager in that form.

A user's allocator is made by `module:function(num_blocks, block_size, **options)`, where options are `window`,
`trash_block` and `num_host_blocks` as far as they are set. It has these methods; those marked * are optional and tried
only where they exist:

    open(request, token_ids, namespace: dict) -> int             tokens that are cached
    schedule(request, num_tokens, draft_ids) -> (slots, copies)  copies: (source block, target block, rows)
    complete(request, new_ids)                                   accepted drafts and one more, or [] or one sampled id
    finish(request)
    block_table(request) -> list of block ids                    -1 (or null_block) where a column was evicted
  * fork(request, child), preempt(request), resume(request) -> int or None (tokens that are cached)
  * swap_out(request) -> [(block, host block)], swap_in(request) -> [(host block, block)]
  * begin_step() -> step, end_step(step)
  * num_free() -> int, check_integrity(), null_block, num_computed(request) -> int

It says that it has too few blocks by raising an exception whose class is called OutOfBlocks, and then nothing may have
changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from degarble.kvcache.block import NULL_BLOCK
from degarble.kvcache.block_manager import BlockManager
from degarble.kvcache.isolation import NO_ISOLATION, Isolation
from degarble.kvcache.namespace import Namespace


class Allocator(Protocol):
    """The required part."""

    def open(self, request: str, token_ids: Sequence[int], namespace: dict[str, Any]) -> int:
        """A new request."""

    def schedule(
        self, request: str, num_tokens: int, draft_ids: Sequence[int]
    ) -> tuple[Sequence[int], Sequence[tuple[int, int, int]]]:
        """Slots of the next tokens, and block copies to do before they are written."""

    def complete(self, request: str, new_ids: Sequence[int]) -> None:
        """What was scheduled is computed."""

    def finish(self, request: str) -> None:
        """The request ends."""

    def block_table(self, request: str) -> Sequence[int]:
        """Blocks of the request in order."""


class ManagedAllocator:
    """BlockManager in the form above."""

    null_block = NULL_BLOCK

    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        *,
        window: int | None = None,
        trash_block: int | None = None,
        num_host_blocks: int = 0,
        isolation: Isolation = NO_ISOLATION,
        manager: Callable[..., BlockManager] = BlockManager,
    ) -> None:
        self.manager = manager(
            num_blocks,
            block_size,
            window=window,
            trash_block=trash_block,
            num_host_blocks=num_host_blocks,
            isolation=isolation,
        )
        self.begin_step = self.manager.begin_step
        self.end_step = self.manager.end_step
        self.complete = self.manager.complete
        self.fork = self.manager.fork
        self.check_integrity = self.manager.check_integrity
        if num_host_blocks:
            self.swap_out = self._swap_out
            self.swap_in = self.manager.resume

    def open(self, request: str, token_ids: Sequence[int], namespace: dict[str, Any]) -> int:
        """A new request."""
        return self.manager.open(request, token_ids, Namespace(**namespace))

    def schedule(
        self, request: str, num_tokens: int, draft_ids: Sequence[int]
    ) -> tuple[list[int], list[tuple[int, int, int]]]:
        """Slots and copies."""
        work = self.manager.schedule(request, num_tokens, draft_ids)
        return work.slots, [(copy.source, copy.target, copy.num_rows) for copy in work.copies]

    def block_table(self, request: str) -> list[int]:
        """Blocks in order."""
        return self.manager.sequence(request).block_table

    def slots(self, request: str, start: int, end: int) -> list[int]:
        """Slots of positions, for a cutting that is not at multiples of block_size."""
        return self.manager.sequence(request).slots(start, end)

    def preempt(self, request: str) -> None:
        """Take the blocks away; they are computed again."""
        self.manager.preempt(request)

    def resume(self, request: str) -> int:
        """Tokens that are cached."""
        self.manager.resume(request)
        return self.num_computed(request)

    def _swap_out(self, request: str) -> list[tuple[int, int]]:
        return self.manager.preempt(request, to_host=True)

    def finish(self, request: str) -> None:
        """The request ends."""
        self.manager.finish(request)

    def num_free(self) -> int:
        """Blocks that can be taken, or could once open steps end."""
        return self.manager.pool.num_free + self.manager.pool.num_waiting

    def num_computed(self, request: str) -> int:
        """Rows that finished steps wrote."""
        return self.manager.sequence(request).num_computed


def make(num_blocks: int, block_size: int, **options: Any) -> ManagedAllocator:
    """The package's own allocator: `--allocator degarble.kvcache.allocator:make`."""
    return ManagedAllocator(num_blocks, block_size, **options)
