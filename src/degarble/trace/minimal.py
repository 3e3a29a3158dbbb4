"""A small trace that breaks the same rule at the same event: what a bug report needs.

Whole requests that have nothing to do with the violation are left out, then the events of the pool that touch none of
the blocks that are left. Every candidate is replayed; what does not break the rule any more is put back. Counters are
new, the old one stays in `was`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from degarble.errors import TargetError
from degarble.trace.event import AnyEvent, Broken, Event, Meta
from degarble.trace.reader import Item, read_items
from degarble.trace.replay import replay_items
from degarble.trace.violation import Violation

MAX_EVENTS = 200_000
"""A violation later than this is not reduced: every candidate has to be replayed."""
MAX_TRIES = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Minimal:
    """The reduced trace."""

    rule: str
    lines: list[str]
    num_events: int
    """Events up to the violation in the whole trace."""


def minimal_trace(path: str) -> Minimal | None:
    """Reduce; None if nothing is broken. Raises TargetError where the trace is too long or its stream is damaged."""
    first = replay_items(read_items(path)).first
    if first is None:
        return None
    if first.line > MAX_EVENTS:
        raise TargetError(
            f"{path}: the first violation is event {first.line}, beyond the {MAX_EVENTS} that are reduced"
        )
    events = _events_until(path, first.line)
    if first.rule == "KVC623":
        raise TargetError(f"{path}: the stream itself is damaged at {first.line}: a shorter stream proves nothing")
    kept = _without_requests(events, first)
    kept = _without_rest(kept, first)
    return Minimal(rule=first.rule, lines=_renumbered(kept), num_events=len(events))


def _events_until(path: str, line: int) -> list[AnyEvent]:
    kept: list[AnyEvent] = []
    for batch in read_items(path):
        for item in batch:
            if isinstance(item, Broken):
                continue
            kept.append(item)
            if item.n >= line:
                return kept
    return kept


def _still_breaks(events: list[AnyEvent], whole: Violation) -> bool:
    """Whether the same event, and nothing before it, breaks the rule at the same place with the same numbers."""
    if not events or not isinstance(events[0], Meta):
        return False
    copies: list[Item] = []
    for index, event in enumerate(events):
        copy = msgspec.structs.replace(event, n=index)
        copies.append(copy)
    first = replay_items([copies]).first
    if first is None or not 0 <= first.line < len(events) or events[first.line].n != whole.line:
        return False
    return _facts(first) == _facts(whole)


def _facts(violation: Violation) -> tuple[object, ...]:
    place = (violation.request, violation.block, violation.slot, violation.position)
    return (violation.rule, *place, dict(violation.measured), dict(violation.bound))


def _request_of(event: Event) -> str | None:
    name = getattr(event, "req", None)
    return None if name is None else str(name)


def _without_requests(events: list[AnyEvent], whole: Violation) -> list[AnyEvent]:
    """Leave out halves of the other requests, then quarters, down to single ones."""
    names = list(
        dict.fromkeys(name for event in events if (name := _request_of(event)) is not None and name != whole.request)
    )
    tries = 0
    size = max(1, len(names))
    while size >= 1 and tries < MAX_TRIES:
        start = 0
        while start < len(names) and tries < MAX_TRIES:
            dropped = set(names[start : start + size])
            rest = [event for event in events if _request_of(event) not in dropped]
            tries += 1
            if _still_breaks(rest, whole):
                events = rest
                names = [name for name in names if name not in dropped]
            else:
                start += size
        size //= 2
    return events


def _without_rest(events: list[AnyEvent], whole: Violation) -> list[AnyEvent]:
    """Leave out runs of single events, halving the length of the runs."""
    tries = 0
    size = max(1, len(events) // 2)
    while size >= 1 and tries < MAX_TRIES:
        start = 1
        while start < len(events) - 1 and tries < MAX_TRIES:
            rest = events[:start] + events[min(start + size, len(events) - 1) :]
            tries += 1
            if _still_breaks(rest, whole):
                events = rest
            else:
                start += size
        size //= 2
    return events


def _renumbered(events: list[AnyEvent]) -> list[str]:
    lines = []
    for index, event in enumerate(events):
        fields: dict[str, Any] = msgspec.to_builtins(event)
        lines.append(
            msgspec.json.encode({"n": index, **{k: v for k, v in fields.items() if k != "n"}, "was": event.n}).decode()
        )
    return lines
