"""`@trace_fault`: a small function that plants one fault in the events of a healthy trace, and says where it shows.

The counters of the patient are its list indices: a fault inserts or changes events, returns the place by index, and the
caller counts anew (unless the fault is in the counters themselves). A fault that makes no sense in a trace raises
NotApplicable.
"""

from __future__ import annotations

import copy
import inspect
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec

from degarble.finding import Location
from degarble.registry import RULE_ID, walk
from degarble.trace.event import KINDS, AnyEvent
from degarble.trace.replay import Replay
from degarble.trace.state import State

T = TypeVar("T")
Fields = dict[str, Any]


class NotApplicable(Exception):
    """This trace has nothing in which the fault could be planted."""


@dataclass(slots=True, kw_only=True)
class TracePatient:
    """A healthy trace as plain objects, which the fault changes in place."""

    events: list[Fields]
    rng: random.Random
    moment: int | None = None
    """The counter from which on the fault shall come: at the first event that fits. None: at a random one."""

    @property
    def meta(self) -> Fields:
        """The first line."""
        return self.events[0]

    @property
    def group(self) -> Fields:
        """The first declared group. Raises NotApplicable if there is none."""
        groups = self.meta.get("groups")
        if not groups:
            raise NotApplicable("no group is declared")
        found: Fields = groups[0]
        return found

    def pick(self, things: Iterable[T]) -> T:
        """One of several, by the seed. Raises NotApplicable if there are none."""
        pool = list(things)
        if not pool:
            raise NotApplicable("nothing suitable")
        return self.rng.choice(pool)

    def pick_event(self, candidates: Iterable[int]) -> int:
        """One of several events. Raises NotApplicable if there are none, or none from the moment on."""
        return self._at_moment([(index, None) for index in candidates])[0]

    def _at_moment(self, found: list[tuple[int, T]]) -> tuple[int, T]:
        if self.moment is None:
            return self.pick(found)
        later = [one for one in found if one[0] >= self.moment]
        if not later:
            raise NotApplicable(f"nothing suitable from event {self.moment} on")
        return min(later, key=lambda one: one[0])

    def of(self, *kinds: str) -> list[int]:
        """Indices of the events of some kinds."""
        return [index for index, event in enumerate(self.events) if event.get("ev") in kinds]

    def states(self) -> Iterator[tuple[int, Fields, State]]:
        """Each event with the state before it. The events must not be changed meanwhile."""
        replay = Replay()
        for index, event in enumerate(self.events):
            yield index, event, replay.state
            replay.feed([as_event(event)])

    def pick_state(self, is_suitable: Callable[[Fields, State], T | None]) -> tuple[int, T]:
        """An index, and what the function gave for it (None: not suitable)."""
        found = [(i, value) for i, event, state in self.states() if (value := is_suitable(event, state)) is not None]
        return self._at_moment(found)

    def insert(self, index: int, *events: Fields) -> None:
        """Put events before an index."""
        self.events[index:index] = list(events)

    def cut(self, index: int) -> None:
        """End the trace after an index: what follows would only be consequences."""
        del self.events[index + 1 :]


def as_event(fields: Mapping[str, Any]) -> AnyEvent:
    """An event from plain fields."""
    converted: Any = msgspec.convert({key: value for key, value in fields.items() if key != "ev"}, KINDS[fields["ev"]])
    event: AnyEvent = converted
    return event


TraceFaultFunction = Callable[[TracePatient], Location]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFault:
    """One planted fault."""

    rule: str
    name: str
    function: TraceFaultFunction
    renumbers: bool

    @property
    def summary(self) -> str:
        """First line of the docstring."""
        return inspect.cleandoc(self.function.__doc__ or "").split("\n", 1)[0]

    def plant(self, events: Sequence[Fields], seed: int, moment: int | None = None) -> tuple[list[Fields], Location]:
        """A changed copy, and the place where the rule must point. Raises NotApplicable."""
        patient = TracePatient(events=copy.deepcopy(list(events)), rng=random.Random(seed), moment=moment)
        place = self.function(patient)
        if self.renumbers:
            for index, event in enumerate(patient.events):
                event["n"] = index
        return patient.events, place


def trace_fault(rule: str, *, renumbers: bool = True) -> Callable[[TraceFaultFunction], TraceFaultFunction]:
    """Mark a function as a trace fault of `rule`; `renumbers` False: the counters are left as the fault leaves them."""
    if not RULE_ID.match(rule):
        raise ValueError(f"{rule!r} is not a rule id")

    def mark(function: TraceFaultFunction) -> TraceFaultFunction:
        function.__dict__["degarble_trace_fault"] = (rule, renumbers)
        return function

    return mark


@cache
def trace_faults() -> tuple[TraceFault, ...]:
    """Every fault there is, by rule and name."""
    import degarble.trace_faults as package

    found: list[TraceFault] = []
    for module in walk(package):
        for name, member in vars(module).items():
            marked = getattr(member, "__dict__", {}).get("degarble_trace_fault")
            if marked is not None and member.__module__ == module.__name__:
                rule, renumbers = marked
                found.append(TraceFault(rule=rule, name=name.replace("_", "-"), function=member, renumbers=renumbers))
    return tuple(sorted(found, key=lambda fault: (fault.rule, fault.name)))
