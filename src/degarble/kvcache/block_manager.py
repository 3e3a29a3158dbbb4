"""Which block of the pool holds which tokens of which request: allocation, sharing, eviction, rollback.

The life of a request, as an engine calls it:

    cached = manager.open("r1", prompt_ids, namespace)       takes what the prefix cache has; leaves at least one token
    work = manager.schedule("r1", num_tokens)                blocks and slots for the next tokens; copies to do first
    step = manager.begin_step([work])                        blocks let go from here on wait for the step
    …   the engine copies rows, writes K/V to work.slots, reads blocks of the table
    manager.end_step(step)
    manager.complete("r1", [sampled_id])                     the scheduled tokens are computed; full blocks are published
    manager.finish("r1")

Every call either does all of its work or raises and changes nothing. `check_integrity()` proves the whole state.
A window evicts by computed tokens, never by scheduled ones (vllm-project/vllm#47728). Drafts are scheduled as tokens,
and `complete` with the accepted ids and one more rolls the rest back.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

from degarble.errors import BlockMisuse, OutOfBlocks
from degarble.kvcache.block import NULL_BLOCK
from degarble.kvcache.block_state import BlockCopy, BlockState, Observer
from degarble.kvcache.namespace import PLAIN, Namespace
from degarble.kvcache.sequence import Phase, Sequence

__all__ = ["BlockCopy", "BlockManager", "Observer", "Work"]


@dataclass(frozen=True, slots=True)
class Work:
    """Positions [start, end) of one request in one step."""

    request: str
    start: int
    end: int
    slots: list[int]
    copies: list[BlockCopy]


class BlockManager(BlockState):
    """One cache group of one engine. `trash_block` is never handed out: padded rows may write there."""

    def open(self, request: str, token_ids: Items[int], namespace: Namespace = PLAIN) -> int:
        """A new request; returns how many of its tokens are cached, at most all but one."""
        if request in self.sequences:
            raise BlockMisuse(f"request {request!r} is open already")
        if not token_ids:
            raise BlockMisuse(f"request {request!r} has no tokens")
        sequence = Sequence(request, token_ids, namespace, self.block_size, self.isolation)
        self.sequences[request] = sequence
        self._emit("req", req=request, op="new", ids=list(token_ids), ns=namespace.tags())
        return self._take_cached(sequence)

    def schedule(self, request: str, num_tokens: int, draft_ids: Items[int] = ()) -> Work:
        """Blocks for the next known tokens and for drafts after them. Raises OutOfBlocks and changes nothing."""
        sequence = self._running(request)
        if sequence.num_drafts:
            raise BlockMisuse(f"{request!r}: drafts are in flight; complete them first")
        known = len(sequence.token_ids) - sequence.num_scheduled
        if not 1 <= num_tokens <= known or (draft_ids and (num_tokens != known or sequence.num_in_flight)):
            raise BlockMisuse(f"{request!r}: {num_tokens} tokens scheduled, {known} are known and not scheduled")
        start = sequence.num_scheduled
        sequence.extend(draft_ids)
        end = start + num_tokens + len(draft_ids)
        try:
            copies = self._reserve(sequence, start, end)
        except OutOfBlocks:
            sequence.truncate(len(sequence.token_ids) - len(draft_ids))
            raise
        sequence.num_drafts = len(draft_ids)
        sequence.num_scheduled = end
        return Work(request, start, end, self._slots(sequence, start, end), copies)

    def complete(self, request: str, new_ids: Items[int] = (), num_tokens: int | None = None) -> None:
        """Scheduled tokens (all, or the oldest `num_tokens`) are computed; `new_ids` is what was sampled after them.

        After drafts `new_ids` are the accepted ones and the one sampled after them; the others are rolled back.
        """
        sequence = self._running(request)
        count = sequence.num_in_flight if num_tokens is None else num_tokens
        is_last = sequence.num_computed + count == len(sequence.token_ids)
        if not 1 <= count <= sequence.num_in_flight or (sequence.num_drafts and not is_last):
            raise BlockMisuse(f"{request!r}: {count} tokens completed, {sequence.num_in_flight} are in flight")
        if sequence.num_drafts:
            self._settle_drafts(sequence, new_ids)
        elif len(new_ids) > is_last:
            raise BlockMisuse(f"{request!r}: {len(new_ids)} tokens sampled where at most {int(is_last)} can be")
        else:
            sequence.num_computed += count
            sequence.extend(new_ids)
            if new_ids:
                self._emit(
                    "commit", req=request, len=sequence.num_computed, at=sequence.num_computed, ids=list(new_ids)
                )
        self._publish(sequence)
        self._evict_window(sequence)

    def fork(self, request: str, child: str) -> None:
        """A second request with the same tokens that shares every block until one of them writes."""
        sequence = self._running(request)
        if child in self.sequences or sequence.num_in_flight:
            raise BlockMisuse(f"{request!r} cannot fork to {child!r}: it is open, or tokens are in flight")
        twin = Sequence(child, sequence.token_ids, sequence.namespace, self.block_size, self.isolation)
        twin.keys = list(sequence.keys)
        twin.num_computed = twin.num_scheduled = sequence.num_computed
        twin.num_evicted = sequence.num_evicted
        twin.block_table = [NULL_BLOCK] * twin.num_evicted
        self.sequences[child] = twin
        self._emit("req", req=child, op="fork", parent=request, ids=list(twin.token_ids), ns=twin.namespace.tags())
        self._hold(twin, twin.num_evicted, sequence.block_table[twin.num_evicted :])

    def preempt(self, request: str, *, to_host: bool = False) -> list[tuple[int, int]]:
        """Take the blocks away. Recompute: nothing to do. To host: (block, host block) pairs to copy at once."""
        sequence = self._running(request)
        pairs: list[tuple[int, int]] = []
        host_blocks: list[int] = []
        if to_host:
            if self.host_pool is None:
                raise BlockMisuse("there is no host pool: num_host_blocks is 0")
            host_blocks = self.host_pool.take(sequence.num_columns(sequence.num_computed) - sequence.num_evicted)
        self._drop_in_flight(sequence)
        if to_host:
            pairs = list(zip(sequence.live_blocks(), host_blocks, strict=True))
            sequence.host_blocks = host_blocks
            sequence.phase = Phase.SWAPPED
        self._free_columns(sequence, 0)
        if not to_host:
            sequence.phase = Phase.PREEMPTED
            sequence.num_computed = sequence.num_scheduled = sequence.num_evicted = 0
            sequence.keys.clear()
        self._emit("req", req=request, op="preempt")
        return pairs

    def resume(self, request: str) -> list[tuple[int, int]]:
        """Give a preempted request its place back. From host: (host block, block) pairs to copy before the next step.

        After a recompute preemption the prefix cache may have some of it: `sequence(request).num_computed` says so.
        """
        sequence = self.sequence(request)
        if sequence.phase is Phase.RUNNING:
            raise BlockMisuse(f"{request!r} is not preempted")
        host_blocks = sequence.host_blocks
        blocks = self._take(len(host_blocks))
        self._emit("req", req=request, op="resume")
        if sequence.phase is Phase.PREEMPTED:
            sequence.phase = Phase.RUNNING
            self._take_cached(sequence)
            return []
        assert self.host_pool is not None
        sequence.block_table = [NULL_BLOCK] * sequence.num_evicted + blocks
        if blocks:
            self._emit("alloc", req=request, b=blocks, at=sequence.num_evicted, rc=[1] * len(blocks))
        self.host_pool.release(host_blocks)
        sequence.host_blocks = []
        sequence.phase = Phase.RUNNING
        return list(zip(host_blocks, blocks, strict=True))

    def finish(self, request: str, *, is_abort: bool = False) -> None:
        """Let go of everything; published blocks stay findable until they are handed out again."""
        sequence = self.sequence(request)
        self._free_columns(sequence, 0)
        if self.host_pool is not None:
            self.host_pool.release(sequence.host_blocks)
        del self.sequences[request]
        self._emit("req", req=request, op="abort" if is_abort else "finish")

    def begin_step(self, works: Items[Work] = ()) -> int:
        """From here on blocks that are let go wait until the step has ended; `works` are told to the observer."""
        step = self.pool.begin_step()
        if self._observe is not None:
            tables = [self.sequences[work.request].live_blocks() for work in works]
            self._emit("step", step=step, ph="B", blocks=sorted({block for table in tables for block in table}))
            for work in works:
                draft = {"draft": True} if self.sequences[work.request].num_drafts else {}
                self._emit("fwd", req=work.request, pos=[work.start, work.end], slots=work.slots, kv=work.end, **draft)
        return step

    def end_step(self, step: int) -> None:
        """The step no longer reads or writes."""
        self.pool.end_step(step)
        self._emit("step", step=step, ph="E")

    def withdraw(self, blocks: Items[int]) -> None:
        """Forget published blocks whose content is in doubt, and all that was computed on top of them."""
        for block in self.prefix_cache.with_continuations(blocks):
            self._withdraw(block)

    def clear_prefix_cache(self) -> None:
        """Forget all published blocks: after weights or an adapter changed under the same name."""
        for block in range(self.pool.num_blocks):
            self._withdraw(block)

    @property
    def trash_slot(self) -> int:
        """Where padded rows write. Raises BlockMisuse if no trash block was set aside."""
        if self.trash_block is None:
            raise BlockMisuse("no trash_block was set aside, so padded rows have nowhere to write")
        return self.trash_block * self.block_size

    def check_integrity(self) -> None:
        """Prove every invariant of the state. Raises BlockMisuse with all that is broken."""
        from degarble.kvcache.integrity import problems

        found = problems(self)
        if found:
            raise BlockMisuse("; ".join(found[:20]))
