"""Every kind of fault that a trace shows, at random moments of random lives: the planted event is the first violation.

The kinds are the thirty of docs/kv-kinds.md. Healthy lives of the same engine raise nothing. The slow tier plants every
kind twenty times and more, and replays 100,000 healthy engine steps.
"""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import pytest

from degarble.finding import Location
from degarble.registry import rules
from degarble.trace.replay import Verdict
from degarble.trace.violation import Violation
from degarble.trace_faults.interface import NotApplicable, trace_faults
from degarble.trace_faults.kinds import Kind, kinds, page
from tests.trace.simulator import FLAVOURS, Simulator, trace_of
from tests.trace.traces import verdict_of

BY_NAME = {fault.name: fault for fault in trace_faults()}
SEEN = [kind for kind in kinds() if kind.is_seen_offline]
QUICK, FULL = 2, 20
HEALTHY_STEPS = 100_000


def first_of(verdict: Verdict) -> Violation:
    """The earliest; of those at one event a real one before a note."""
    return min(verdict.violations, key=lambda one: (one.line, one.is_info))


def assert_blamed(kind: Kind, verdict: Verdict, place: Location, where: str) -> None:
    assert verdict.violations, f"{where}: nothing found, planted at {place.as_dict()}"
    first = first_of(verdict)
    assert first.rule in kind.rules, f"{where}: {first}, planted at {place.as_dict()}"
    for key, value in place.as_dict().items():
        assert getattr(first, key) == value, f"{where}: {key} of {first}, planted at {place.as_dict()}"


def plant_and_judge(kind: Kind, count: int, first_seed: int, folder: Path) -> set[int]:
    """Plant `count` times, over faults, flavours and seeds; returns the events at which it was planted."""
    planted: list[int] = []
    flavours = sorted(FLAVOURS, key=lambda name: zlib.crc32(f"{kind.id}{name}".encode()))
    for attempt in range(40 * count):
        name = kind.faults[attempt % len(kind.faults)]
        flavour = flavours[attempt // len(kind.faults) % len(flavours)]
        seed = first_seed + attempt
        try:
            events, place = BY_NAME[name].plant(trace_of(flavour, seed, 260), seed)
        except NotApplicable:
            continue
        verdict = verdict_of(folder / "trace.jsonl", events)
        assert_blamed(kind, verdict, place, f"{kind.id} {name} {flavour} {seed}")
        planted.append(place.line or 0)
        if len(planted) == count:
            return set(planted)
    pytest.fail(f"{kind.id} was planted {len(planted)} times only")


@pytest.mark.parametrize("kind", SEEN, ids=lambda kind: kind.id)
def test_first_violating_event_is_the_planted_one(kind: Kind, tmp_path: Path) -> None:
    plant_and_judge(kind, QUICK, first_seed=1, folder=tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEEN, ids=lambda kind: kind.id)
def test_first_violating_event_at_many_moments(kind: Kind, tmp_path: Path) -> None:
    moments = plant_and_judge(kind, FULL, first_seed=1000, folder=tmp_path)
    assert len(moments) > 5 or moments <= {0, 1, 2, 3}, "a fault of the first lines, or of many moments"


@pytest.mark.slow
@pytest.mark.parametrize("flavour", sorted(FLAVOURS))
def test_healthy_steps_raise_nothing(flavour: str, tmp_path: Path) -> None:
    """One long life a flavour; together 100,000 engine steps and more."""
    wanted = -(-HEALTHY_STEPS // len(FLAVOURS))
    steps: Counter[str] = Counter()
    for seed in range(1000):
        events = Simulator(seed, FLAVOURS[flavour]).run(20_000)
        verdict = verdict_of(tmp_path / "trace.jsonl", events)
        assert not verdict.violations and not verdict.unknown, (seed, verdict.first)
        steps["begun"] += sum(event["ev"] == "step" and event["ph"] == "B" for event in events)
        if steps["begun"] >= wanted:
            return
    pytest.fail(f"{steps['begun']} steps only")


def test_the_table_names_what_there_is() -> None:
    """Thirty kinds; every rule and fault exists; every trace fault belongs to a kind; what is not seen says why."""
    table = kinds()
    assert [kind.id for kind in table] == [f"KC{number:02}" for number in range(1, 31)]
    assert {rule for kind in table for rule in kind.rules} <= set(rules())
    assert Counter(name for kind in table for name in kind.faults) == Counter(list(BY_NAME))
    for kind in table:
        assert {BY_NAME[name].rule for name in kind.faults} <= set(kind.rules)
        assert kind.faults if kind.is_seen_offline else kind.blind
        assert f"| {kind.id} |" in page()


def test_a_stated_moment_is_kept() -> None:
    events = trace_of("plain", 3, 260)
    _, place = BY_NAME["slot-off-by-one"].plant(events, 0, moment=150)
    between = [event for event in events[150 : place.line] if event["ev"] == "fwd"]
    assert place.line is not None and place.line >= 150 and not between
    with pytest.raises(NotApplicable, match="from event 1000 on"):
        BY_NAME["slot-off-by-one"].plant(events, 0, moment=1000)
