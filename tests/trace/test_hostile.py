"""Damaged traces through everything that reads them: verdict, boundaries, page, Perfetto; never a traceback."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.api import trace, traced
from degarble.errors import TargetError
from degarble.report.html import render
from degarble.report.interface import Status
from degarble.report.trace_picture import pictures
from degarble.trace.occupancy import read_occupancy
from degarble.trace.perfetto import chrome_trace
from degarble.trace.source import TraceSource
from degarble.trace.timeline import read_timeline
from tests.hostile.mutation import damaged_bytes, damaged_tree
from tests.trace.traces import Fields, healthy, write

QUICK = settings(max_examples=50, deadline=None, database=None, derandomize=True)
EVENTS = [dict(event) for event in healthy("forks")[:30]]
LINES = b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS[:20])


def survives(path: Path) -> None:
    try:
        verdict = TraceSource([str(path)]).verdict
    except TargetError as error:
        assert str(path) in str(error) or "schema" in str(error)
        return
    assert all(isinstance(violation.line, int) for violation in verdict.violations)
    timeline = read_timeline(str(path), verdict)
    assert len(pictures(read_occupancy(str(path), verdict), timeline)) < 1_000_000
    json.loads(chrome_trace(timeline))


def test_damaged_events(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"

    @given(damaged_tree(EVENTS))
    @QUICK
    def run(tree: list[Any]) -> None:
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in tree))
        survives(path)

    run()


def test_damaged_bytes(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"

    @given(damaged_bytes(LINES))
    @QUICK
    def run(data: bytes) -> None:
        path.write_bytes(data)
        survives(path)

    run()


@pytest.mark.parametrize("shift", [1, 2, 7])
def test_reordered_lines_are_found_at_the_first_that_moved(shift: int, tmp_path: Path) -> None:
    events = [dict(event) for event in healthy("healthy-plain16")]
    events[50], events[50 + shift] = events[50 + shift], events[50]
    first = trace([write(tmp_path / "t.jsonl", events)]).causes[0].finding
    assert (first.rule, first.location.line) == ("KVC623", 50 + shift)


@pytest.mark.parametrize(
    "event",
    [
        {"ev": "alloc", "b": [9]},
        {"ev": "ref", "b": [1]},
        {"ev": "free", "b": [1]},
        {"ev": "fwd", "pos": [0, 1], "slots": [16], "kv": 1},
        {"ev": "hit", "h": ["x"], "b": [1], "tok": 16},
        {"ev": "commit", "ids": [3], "at": 0},
        {"ev": "rollback", "ids": [3], "at": 0},
        {"ev": "req", "op": "finish"},
        {"ev": "shift", "delta": 3},
        {"ev": "state", "idx": 0, "valid_at": 0},
    ],
    ids=lambda event: event["ev"],
)
def test_events_of_requests_that_nobody_announced(event: Fields, tmp_path: Path) -> None:
    events = [dict(one) for one in healthy("healthy-plain16")[:30]]
    events.insert(20, event | {"req": "stranger"})
    found = trace([write(tmp_path / "t.jsonl", [one | {"n": n} for n, one in enumerate(events)])]).findings
    assert [(f.rule, f.location.line, f.location.request) for f in found] == [("KVC623", 20, "stranger")]


@given(st.integers(0, len(LINES)))
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
def test_a_trace_cut_anywhere(end: int) -> None:
    """Whole lines are judged; a last line that is no line is found at its number."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.jsonl"
        path.write_bytes(LINES[:end])
        report = trace([path])
        whole, _, rest = LINES[:end].rpartition(b"\n")
        if end == 0:
            assert report.status is Status.ERROR
        elif whole and rest and not is_event(rest):
            assert [(f.rule, f.location.line) for f in report.findings] == [("KVC623", whole.count(b"\n") + 1)]
        elif whole:
            assert report.findings == ()


def is_event(line: bytes) -> bool:
    """Whether a cut left a whole line."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def test_a_page_of_a_broken_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "t.jsonl", [EVENTS[0], {"n": 1, "ev": "alloc", "req": "\u202e", "b": [1 << 70, -5]}])
    report, verdict = traced([path])
    assert verdict is not None
    drawn = pictures(read_occupancy(str(path), verdict), read_timeline(str(path), verdict))
    assert "\u202e" not in render(report, pictures=drawn)
