"""One thread owns the engine; requests come from asyncio, tokens go back to it.

    asyncio                                   the engine's thread
    submit ── commands (a queue) ──────────►  add
    abort  ── commands ────────────────────►  abort: blocks are free before the next step
    Ticket.updates  ◄── call_soon_threadsafe  every step: what is new

Routes (request id -> ticket) are touched by asyncio alone, the engine by its thread alone, so neither needs a lock. A
step that raises ends the requests whose tokens were in flight, and no other: their blocks were never published to the
prefix cache. If the block manager's own proof fails after that, the engine is given up, and says so.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TypeVar

import msgspec

from degarble.errors import DegarbleError
from degarble.kvcache.namespace import PLAIN, Namespace
from degarble_engine.engine.guide import Guide
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.request import FinishReason, Request
from degarble_engine.engine.sampler import Sampled
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.trip import Trip

log = logging.getLogger("degarble.server")
Answer = TypeVar("Answer")
ASK_SECONDS = 30.0
"""A long step on a slow machine."""


class QueueFull(DegarbleError):
    """As many requests wait as may; the caller should come again."""


class EngineStopped(DegarbleError):
    """The engine takes nothing more: it is being shut down, or its state can no longer be trusted."""


class Job(msgspec.Struct, frozen=True):
    """One sequence to generate."""

    prompt_ids: Sequence[int]
    params: SamplingParams
    namespace: Namespace = PLAIN
    guide: Guide | None = None


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What is new in one sequence of a ticket."""

    index: int
    new: tuple[Sampled, ...] = ()
    num_cached: int = 0
    """Prompt tokens that the prefix cache had."""
    started_at: float | None = None
    """When it got a place in the batch, by perf_counter."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    error: str | None = None
    """Why it ended with FinishReason.ERROR."""
    trips: tuple[Trip, ...] = ()
    """What guards saw so far."""


class Ticket:
    """The sequences of one HTTP request."""

    def __init__(self, owner: EngineLoop) -> None:
        self.updates: asyncio.Queue[Update] = asyncio.Queue()
        """At most `max_tokens` long, so a slow reader costs little."""
        self.request_ids: list[str] = []
        self._owner = owner

    def abort(self, index: int) -> None:
        """End one sequence; nothing if it has ended."""
        self._owner.abort(self.request_ids[index])

    def close(self) -> None:
        """End all that still run."""
        for request_id in self.request_ids:
            self._owner.abort(request_id)


class _Told:
    """A request and how much of it was told."""

    def __init__(self, request: Request) -> None:
        self.request, self.num_told = request, 0


class EngineLoop:
    """`start`, `submit`, `abort` and `close` are for one asyncio loop."""

    def __init__(self, engine: LLMEngine, *, max_queued: int = 256) -> None:
        """`max_queued`: sequences that may wait beyond those that the engine computes together."""
        self.engine, self.max_queued = engine, max_queued
        self.num_failed_steps = 0
        self.failure: str | None = None
        """Why the engine was given up."""
        self.is_draining = False
        """Set from outside: nothing new is taken, what runs goes on."""
        self._commands: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._routes: dict[str, tuple[Ticket, int]] = {}
        self._told: dict[str, _Told] = {}
        self._numbers = count(1)
        self._thread = threading.Thread(target=self._run, name="degarble-engine", daemon=True)
        self._asyncio: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Begin to compute. Updates arrive in the asyncio loop that runs now."""
        self._asyncio = asyncio.get_running_loop()
        self._thread.start()

    @property
    def num_open(self) -> int:
        """Sequences that wait or run."""
        return len(self._routes)

    @property
    def is_ready(self) -> bool:
        """Whether a request would be taken if there is room."""
        return self.failure is None and not self.is_draining and self._thread.is_alive()

    def submit(self, jobs: Sequence[Job]) -> Ticket:
        """Queue all or none. Raises QueueFull, EngineStopped; a prompt that the engine refuses ends with an error."""
        if not self.is_ready:
            raise EngineStopped(self.failure or "the server is shutting down")
        most = self.engine.options.max_num_seqs + self.max_queued
        if self.num_open + len(jobs) > most:
            raise QueueFull(f"{self.num_open} sequences wait or run, {len(jobs)} more would be over {most}")
        ticket = Ticket(self)
        for index, job in enumerate(jobs):
            request_id = f"req-{next(self._numbers)}"
            ticket.request_ids.append(request_id)
            self._routes[request_id] = ticket, index
            self._commands.put(partial(self._add, request_id, job))
        return ticket

    def abort(self, request_id: str) -> None:
        """End a sequence; its ticket hears no more of it."""
        if self._routes.pop(request_id, None) is not None:
            self._commands.put(partial(self._abort, request_id))

    async def ask(self, question: Callable[[LLMEngine], Answer]) -> Answer:
        """What the engine's thread finds between two steps. Raises EngineStopped if it does not come to that."""
        if not self._thread.is_alive():
            raise EngineStopped(self.failure or "the engine does not run")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._commands.put(partial(self._reply, question, future))
        try:
            return await asyncio.wait_for(future, ASK_SECONDS)
        except TimeoutError:
            raise EngineStopped(f"the engine did not answer in {ASK_SECONDS:g} s") from None

    def _reply(self, question: Callable[[LLMEngine], Answer], future: asyncio.Future[Answer]) -> None:
        try:
            result = question(self.engine)
        except Exception as error:  # the question's bug, not the engine's
            self._later(_fail_future, future, error)
        else:
            self._later(_settle_future, future, result)

    def _later(self, call: Callable[..., None], *arguments: object) -> None:
        if self._asyncio is not None and not self._asyncio.is_closed():
            self._asyncio.call_soon_threadsafe(call, *arguments)

    async def close(self) -> None:
        """End everything and wait for the thread."""
        self.is_draining = True
        self._commands.put(None)
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while self._obey():
                if self.engine.has_work:
                    self._step()
        except Exception as error:  # a bug of ours: no request may wait for ever
            log.exception("the engine's thread failed")
            self._give_up(error)
        else:
            for request_id in list(self.engine.requests):
                self.engine.abort(request_id)
            self._tell()

    def _obey(self) -> bool:
        """Do what was asked since the last step; wait for it if there is nothing else to do. False: the end."""
        while not self.engine.has_work or not self._commands.empty():
            command = self._commands.get()
            if command is None:
                return False
            command()
        return True

    def _add(self, request_id: str, job: Job) -> None:
        try:
            request = self.engine.add(
                job.prompt_ids, job.params, request_id=request_id, namespace=job.namespace, guide=job.guide
            )
        except DegarbleError as error:
            self._send([(request_id, Update(index=0, finish_reason=FinishReason.ERROR, error=str(error)))])
        else:
            self._told[request_id] = _Told(request)

    def _abort(self, request_id: str) -> None:
        self._told.pop(request_id, None)
        self.engine.abort(request_id)

    def _step(self) -> None:
        error = None
        try:
            self.engine.step()
        except Exception as raised:
            log.exception("a step failed")
            error = f"{type(raised).__name__}: {raised}"
            self.num_failed_steps += 1
            self._end_in_flight()
        self._tell(error)

    def _end_in_flight(self) -> None:
        """End the requests that the failed step computed. Raises what the block manager's proof finds."""
        engine = self.engine
        names = [name for name, sequence in engine.manager.sequences.items() if sequence.num_in_flight]
        for name in names or list(engine.requests):  # none: not even scheduled, so it would fail the same way again
            if name in engine.requests:
                engine.requests[name].finish(FinishReason.ERROR)
                engine.abort(name)
        engine.manager.check_integrity()

    def _tell(self, error: str | None = None) -> None:
        """Send what is new of every request, and forget those that have ended."""
        found: list[tuple[str, Update]] = []
        for request_id, told in list(self._told.items()):
            request = told.request
            new = tuple(request.outputs[told.num_told :])
            if new or request.finish_reason is not None:
                told.num_told += len(new)
                found.append((request_id, _update(request, new, error)))
            if request.finish_reason is not None:
                del self._told[request_id]
        self._send(found)

    def _send(self, updates: list[tuple[str, Update]]) -> None:
        if updates:
            self._later(self._deliver, updates)

    def _deliver(self, updates: list[tuple[str, Update]]) -> None:
        for request_id, update in updates:
            route = self._routes.get(request_id)
            if route is None:  # aborted meanwhile
                continue
            ticket, index = route
            ticket.updates.put_nowait(msgspec.structs.replace(update, index=index))
            if update.finish_reason is not None:
                del self._routes[request_id]

    def _give_up(self, error: Exception) -> None:
        self.failure = f"the engine was given up: {type(error).__name__}: {error}"
        self._later(self._fail_all)

    def _fail_all(self) -> None:
        ended = Update(index=0, finish_reason=FinishReason.ERROR, error=self.failure)
        self._deliver([(request_id, ended) for request_id in list(self._routes)])


def _settle_future(future: asyncio.Future[Answer], result: Answer) -> None:
    if not future.done():
        future.set_result(result)


def _fail_future(future: asyncio.Future[Answer], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _update(request: Request, new: tuple[Sampled, ...], error: str | None) -> Update:
    is_error = request.finish_reason is FinishReason.ERROR
    return Update(
        index=0,
        new=new,
        num_cached=request.num_cached,
        started_at=request.started_at,
        finish_reason=request.finish_reason,
        stop_reason=request.stop_reason,
        error=(request.error or error or _guarded(request)) if is_error else None,
        trips=tuple(request.trips),
    )


def _guarded(request: Request) -> str | None:
    """Why a guard ended it."""
    return f"guard {request.trips[-1].guard}: {request.trips[-1].message}" if request.trips else None
