"""Which requests compute how many tokens in the next step: continuous batching with chunked prefill.

Requests that decode go first, so that a long prompt delays nobody by more than one step's budget; the rest of the budget
goes to prompts, in the order of arrival, in chunks. Where blocks run out, the request that came last gives its own back
and is computed again later; a request that no pool could hold is refused when it arrives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Protocol

import msgspec

from degarble.errors import OutOfBlocks, UsageError
from degarble.kvcache.block_manager import BlockManager, Work
from degarble_engine.engine.request import FinishReason, Request


class Drafter(Protocol):
    """Proposes what may come next."""

    def propose(self, token_ids: Sequence[int]) -> list[int]:
        """Tokens that may follow; [] for no idea."""


class Scheduled(msgspec.Struct, frozen=True):
    """One request's part of a step."""

    request: Request
    work: Work
    num_drafts: int
    """Of the last tokens of the work."""

    @property
    def is_sampled(self) -> bool:
        """Whether the step reaches the end of what is known, so that a token follows."""
        return self.work.end - self.num_drafts == len(self.request.token_ids)


class Scheduler:
    """Queue and budget. It owns no tensor."""

    def __init__(
        self,
        manager: BlockManager,
        *,
        max_num_seqs: int = 64,
        max_num_batched_tokens: int = 1024,
        drafter: Drafter | None = None,
    ) -> None:
        """`max_num_batched_tokens`: tokens of one step."""
        self.manager = manager
        self._max_seqs, self._budget, self._drafter = max_num_seqs, max_num_batched_tokens, drafter
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.num_preemptions = 0
        self._is_full = False
        """Whether blocks ran out in this step, so that nobody is let in."""

    def add(self, request: Request) -> None:
        """Queue a request. Raises UsageError for one that the pool could never hold."""
        most = len(request.prompt_ids) + request.params.max_tokens
        if most > self.capacity:
            raise UsageError(
                f"{len(request.prompt_ids)} prompt tokens and max_tokens {request.params.max_tokens} need {most} rows, "
                f"the cache has {self.capacity}"
            )
        self.waiting.append(request)

    @property
    def capacity(self) -> int:
        """Rows that a single request can have."""
        manager = self.manager
        blocks = manager.pool.num_blocks - (manager.trash_block is not None)
        return blocks * manager.block_size

    def schedule(self) -> list[Scheduled]:
        """The next step; empty if there is nothing to do."""
        found: list[Scheduled] = []
        budget, self._is_full = self._budget, False
        for request in self._ready():
            if budget <= 0 or request not in self.running:  # taken back for another one
                continue
            part = self._part(request, budget, found)
            if part is not None:
                found.append(part)
                budget -= part.work.end - part.work.start
        return [part for part in found if part.request in self.running]

    def finish(self, request: Request) -> None:
        """Give back all that a request holds, wherever it is."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        if request.is_open:
            self.manager.finish(request.request_id, is_abort=request.finish_reason is FinishReason.ABORT)
            request.is_open = False

    def recompute(self, request: Request) -> None:
        """Take a running request's blocks, and compute all of its rows again when its turn comes."""
        self.running.remove(request)
        self.manager.preempt(request.request_id)
        request.num_preemptions += 1
        self.waiting.appendleft(request)

    def _ready(self) -> Iterator[Request]:
        """Those that decode, those in their prompt, and as many new ones as there is room for."""
        yield from sorted(self.running, key=lambda one: self._missing(one) > 1)
        while self.waiting and len(self.running) < self._max_seqs and not self._is_full:
            request = self.waiting[0]
            if not self._start(request):
                return
            self.waiting.popleft()
            self.running.append(request)
            yield request

    def _start(self, request: Request) -> bool:
        """Open or resume it; False while there are no free blocks at all."""
        if self.manager.pool.num_free == 0:
            return False
        if request.is_open:
            self.manager.resume(request.request_id)
        else:
            request.num_cached = self.manager.open(request.request_id, request.token_ids, request.namespace)
            request.is_open = True
        if request.started_at is None:
            request.started_at = perf_counter()
        return True

    def _missing(self, request: Request) -> int:
        return len(request.token_ids) - self.manager.sequence(request.request_id).num_scheduled

    def _part(self, request: Request, budget: int, found: list[Scheduled]) -> Scheduled | None:
        missing = self._missing(request)
        drafts = self._drafts(request, budget - missing) if missing == 1 else []
        count = min(missing, budget)
        while True:
            try:
                work = self.manager.schedule(request.request_id, count, drafts)
            except OutOfBlocks:
                if drafts:
                    drafts = []
                elif not self._make_room(request, found):
                    return None
            else:
                return Scheduled(request, work, len(drafts))

    def _drafts(self, request: Request, room: int) -> list[int]:
        is_plain = request.params.is_greedy and not request.params.changes_logits and request.guide is None
        if self._drafter is None or room < 1 or not is_plain:
            return []
        left = request.params.max_tokens - request.num_outputs - 1
        return self._drafter.propose(request.token_ids)[: max(0, min(room, left))]

    def _make_room(self, needy: Request, found: list[Scheduled]) -> bool:
        """Take back the youngest request's blocks; False if that is the needy one itself."""
        self._is_full = True
        victim = self.running.pop()
        self.manager.preempt(victim.request_id)
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(victim)
        found[:] = [part for part in found if part.request is not victim]
        return victim is not needy
