"""A live fault: a function that damages an engine that runs, from some step on, and says what it did.

Found by walking the package. Nothing here is planted without being asked for by name, and the server says in its log and
in /health that it was.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import TypeVar

import msgspec
from torch import Tensor

from degarble.errors import UsageError
from degarble.registry import walk
from degarble_engine import planted as package
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.scheduler import Scheduled
from degarble_engine.guards.interface import Surroundings

FIRST_STEP = 8
"""The first steps are healthy, so that there is a state that can be damaged."""


class Victim(msgspec.Struct, frozen=True, kw_only=True):
    """What a fault is planted in."""

    engine: LLMEngine
    surroundings: Surroundings
    rng: random.Random
    first_step: int = FIRST_STEP


Plant = Callable[[Victim], None]
Planter = TypeVar("Planter", bound=Plant)


class LiveFault(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    name: str
    seen_by: str
    """The guard that should see it; '' if no guard can."""
    function: Plant

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]


def live_fault(*, seen_by: str) -> Callable[[Planter], Planter]:
    """Mark a function."""

    def mark(function: Planter) -> Planter:
        function.__dict__["degarble_live_fault"] = seen_by
        return function

    return mark


@cache
def live_faults() -> dict[str, LiveFault]:
    """By name."""
    found: dict[str, LiveFault] = {}
    for module in walk(package):
        for name, member in vars(module).items():
            seen_by = getattr(member, "__dict__", {}).get("degarble_live_fault")
            if seen_by is not None and member.__module__ == module.__name__:
                shown = name.replace("_", "-")
                found[shown] = LiveFault(name=shown, seen_by=seen_by, function=member)
    return dict(sorted(found.items()))


def alter_logits(victim: Victim, change: Callable[[Tensor], Tensor]) -> None:
    """Change the logits of every row from the first step on."""
    runner, engine = victim.engine.runner, victim.engine
    true_run = runner.run

    def run(parts: Sequence[Scheduled]) -> list[Tensor]:
        found = true_run(parts)
        return found if engine.num_steps < victim.first_step else [change(own) for own in found]

    runner.run = run  # type: ignore[method-assign]


def before_steps(victim: Victim, act: Callable[[], None]) -> None:
    """Do something before every step's forward pass, from the first step on."""
    runner, engine = victim.engine.runner, victim.engine
    true_run = runner.run

    def run(parts: Sequence[Scheduled]) -> list[Tensor]:
        if engine.num_steps >= victim.first_step:
            act()
        return true_run(parts)

    runner.run = run  # type: ignore[method-assign]


def require(condition: bool, name: str, why: str) -> None:
    """Raise UsageError where a fault makes no sense."""
    if not condition:
        raise UsageError(f"--inject {name}: cannot be planted here: {why}")
