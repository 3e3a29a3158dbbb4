"""Random lives of an allocator from seeds, and the shortest list of operations that still breaks it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from degarble.kvcache.allocator import Allocator
from degarble.kvcache.stress_memory import Setting
from degarble.kvcache.stress_run import Breach, Operation, StressRun

WEIGHTS = {"open": 6, "step": 20, "settle": 5, "fork": 2, "preempt": 1, "swap": 1, "resume": 3, "finish": 3}
MAX_TRIES = 1500
"""Executions that shrinking may take."""

Make = Callable[[Setting], Allocator]


@dataclass(frozen=True, slots=True, kw_only=True)
class StressResult:
    """What became of all seeds."""

    num_seeds: int
    num_operations: int
    """Carried out, in all seeds together; operations that found nothing to act on are not counted."""
    num_rows_read: int
    by_kind: dict[str, int]
    seed: int | None = None
    """The first that broke something."""
    breach: Breach | None = None
    operations: tuple[Operation, ...] = ()
    """Shrunk; the breach is of these."""


def random_operations(seed: int, count: int) -> list[Operation]:
    """The list that a seed stands for."""
    rng = random.Random(seed)
    kinds = rng.choices(list(WEIGHTS), weights=list(WEIGHTS.values()), k=count)
    return [Operation(kind, rng.randrange(1 << 20), rng.randrange(1 << 20)) for kind in kinds]


def stress(make: Make, setting: Setting, *, seeds: range, num_operations: int, is_shrunk: bool = True) -> StressResult:
    """Run each seed until one breaks an invariant, then shrink it."""
    done: dict[str, int] = {}
    rows = 0
    for number, seed in enumerate(seeds, 1):
        operations = random_operations(seed, num_operations)
        run = StressRun(make(setting), setting)
        breach = run.execute(operations)
        for kind, count in run.done.items():
            done[kind] = done.get(kind, 0) + count
        rows += run.num_rows_read
        if breach is not None:
            short = operations[: breach.operation + 1]
            if is_shrunk:
                short, breach = shrink(make, setting, short, breach)
            return StressResult(
                num_seeds=number,
                num_operations=sum(done.values()),
                num_rows_read=rows,
                by_kind=done,
                seed=seed,
                breach=breach,
                operations=tuple(short),
            )
    return StressResult(num_seeds=len(seeds), num_operations=sum(done.values()), num_rows_read=rows, by_kind=done)


def shrink(make: Make, setting: Setting, operations: list[Operation], breach: Breach) -> tuple[list[Operation], Breach]:
    """Leave out runs of operations, then single ones, as long as the same rule is still broken."""
    best, found = operations, breach
    tries = 0
    size = max(1, len(best) // 2)
    while tries < MAX_TRIES:
        is_shorter = False
        at = 0
        while at < len(best) and tries < MAX_TRIES:
            shorter = best[:at] + best[at + size :]
            tries += 1
            again = StressRun(make(setting), setting).execute(shorter)
            if again is not None and again.rule == found.rule:
                best, found, is_shorter = shorter[: again.operation + 1], again, True
            else:
                at += size
        if size == 1 and not is_shorter:
            break
        size = max(1, size // 2)
    return best, found
