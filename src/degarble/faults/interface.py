"""`@fault`: a small function that plants exactly one fault in a healthy checkpoint, and says where.

The generic test plants every fault in every checkpoint it applies to and expects the rule of the same id as first
cause at that place. A fault that makes no sense in a checkpoint raises NotApplicable; it never does nothing.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

from degarble.checkpoint.workspace import Workspace
from degarble.evidence.store import Evidence, Settings
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.registry import RULE_ID, rules_on, walk

T = TypeVar("T")


class NotApplicable(Exception):
    """This checkpoint has nothing in which the fault could be planted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patient:
    """The healthy checkpoint a fault is planted in: evidence to look at, a workspace to change."""

    evidence: Evidence
    """Of the healthy state; never of the changed one."""
    workspace: Workspace
    rng: random.Random
    """Decides which of several suitable places is hit; seeded by the caller."""

    def modules(self, suitable: Callable[[StoredModule], bool] = lambda module: True) -> list[StoredModule]:
        """Stored modules that a fault could hit. Raises NotApplicable if there are none."""
        inventory = self.evidence.find("modules")
        found = [module for module in inventory.values() if suitable(module)] if inventory else []
        if not found:
            raise NotApplicable("no suitable module")
        return found

    def pick(self, things: Iterable[T]) -> T:
        """One of several, by the seed. Raises NotApplicable if there are none."""
        pool = list(things)
        if not pool:
            raise NotApplicable("nothing suitable")
        return self.rng.choice(pool)


FaultFunction = Callable[[Patient], Location]
"""Plants the fault and returns the place where the rule must point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One planted fault."""

    rule: str
    name: str
    """`scale-missing`, or `scale-missing/one-expert` for a further variant in the same file."""
    function: FaultFunction
    needs_reference: bool
    settings: Settings
    """What a check has to be told to see it: a degree of parallelism, an engine."""

    @property
    def needs_forward_pass(self) -> bool:
        """Whether `degarble compare` sees it and `check` cannot."""
        return self.rule not in rules_on() and self.rule in rules_on("forward_pass")

    @property
    def needs_range_walk(self) -> bool:
        """Whether `degarble overflow` sees it and `check` cannot."""
        return self.rule in rules_on("overflow_walk")

    @property
    def options(self) -> str:
        """The options that `degarble check` needs to see it, ready to paste; '' if none."""
        given = self.settings
        engine = f"{given.engine}@{given.engine_version}" if given.engine_version else given.engine
        pairs = (
            ("--engine", engine),
            ("--tp", given.tensor_parallel),
            ("--ep", given.expert_parallel),
            ("--dtype", given.dtype),
        )
        words = [f"{option} {value}" for option, value in pairs if value is not None]
        return " ".join([*words, *(["--reference HEALTHY"] if self.needs_reference else [])])

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]


def fault(
    rule: str, *, needs_reference: bool = False, settings: Settings | None = None
) -> Callable[[FaultFunction], FaultFunction]:
    """Mark a function as a fault of `rule`.

    `needs_reference`: only `check --reference HEALTHY` can see it. `settings`: what the user has to ask for.
    """
    if not RULE_ID.match(rule):
        raise ValueError(f"{rule!r} is not a rule id")

    def mark(function: FaultFunction) -> FaultFunction:
        function.__dict__["degarble_fault"] = (rule, needs_reference, settings or Settings())
        return function

    return mark


@cache
def faults() -> tuple[Fault, ...]:
    """Every fault there is, by rule and name."""
    import degarble.faults as package

    found: list[Fault] = []
    for module in walk(package):
        for name, member in vars(module).items():
            marked = getattr(member, "__dict__", {}).get("degarble_fault")
            if marked is not None and member.__module__ == module.__name__:
                rule, needs_reference, settings = marked
                found.append(
                    Fault(
                        rule=rule,
                        name=name.replace("_", "-"),
                        function=member,
                        needs_reference=needs_reference,
                        settings=settings,
                    )
                )
    return tuple(sorted(found, key=lambda fault: (fault.rule, fault.name)))
