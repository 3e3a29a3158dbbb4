"""Long work as a list of independent units: profiling, walking and probing all run through one `Executor`.

A unit returns a small record; records merge associatively, so the order of completion does not matter and a cluster may
take the place of threads. Threads suffice on one machine: numpy, file reads and hashes release the interpreter lock.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from threading import Event
from typing import Generic, TypeVar

Result = TypeVar("Result")

Progress = Callable[[int, int], None]
"""Called with the cost done so far and the whole cost, from the thread that waits for results."""

MAX_THREADS = 16
"""Beyond this, memory bandwidth and the interpreter lock leave nothing to gain."""


@dataclass(frozen=True, slots=True)
class Unit(Generic[Result]):
    """One independent piece of work."""

    cost: int
    """In bytes, or whatever all units of one run agree on."""
    work: Callable[[], Result]


class Executor(ABC):
    """Runs units somewhere."""

    @abstractmethod
    def run(self, units: Sequence[Unit[Result]], progress: Progress | None = None) -> Iterator[Result]:
        """Results as they are done, the dearest units started first.

        The first exception of a unit is raised after the others were told to stop; so is KeyboardInterrupt. Closing the
        iterator stops what has not begun.
        """


class ThreadExecutor(Executor):
    """Threads of this process."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = max(1, min(threads or os.cpu_count() or 1, MAX_THREADS))

    def run(self, units: Sequence[Unit[Result]], progress: Progress | None = None) -> Iterator[Result]:
        """See Executor. One thread runs in place, which keeps tracebacks and debuggers simple."""
        ordered = sorted(units, key=lambda unit: -unit.cost)
        results = self._in_place(ordered) if self.threads == 1 or len(ordered) < 2 else self._in_threads(ordered)
        total, done = sum(unit.cost for unit in ordered), 0
        for cost, result in results:
            done += cost
            if progress is not None:
                progress(done, total)
            yield result

    @staticmethod
    def _in_place(units: Sequence[Unit[Result]]) -> Iterator[tuple[int, Result]]:
        for unit in units:
            yield unit.cost, unit.work()

    def _in_threads(self, units: Sequence[Unit[Result]]) -> Iterator[tuple[int, Result]]:
        """At most two units a thread are handed out, so that a stop is prompt and results do not pile up."""
        stopped = Event()
        waiting: dict[Future[Result | None], int] = {}
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="degarble")
        try:
            for unit in units:
                if len(waiting) >= 2 * self.threads:
                    yield from _finished(waiting)
                waiting[pool.submit(_unless_stopped, unit, stopped)] = unit.cost
            while waiting:
                yield from _finished(waiting)
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)


def _unless_stopped(unit: Unit[Result], stopped: Event) -> Result | None:
    return None if stopped.is_set() else unit.work()


def _finished(waiting: dict[Future[Result | None], int]) -> Iterator[tuple[int, Result]]:
    """Wait for at least one; the results of all that are done."""
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in done:
        cost = waiting.pop(future)
        yield cost, future.result()  # type: ignore[misc]  # None only after a stop, when nobody takes results
