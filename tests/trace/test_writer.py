"""What the writer writes is a trace, and one event costs little."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from degarble.trace.event import AnyEvent, Broken, Commit, Fwd
from degarble.trace.reader import read_items
from degarble.trace.replay import replay_items
from degarble.trace.writer import TraceWriter
from tests.trace.traces import HEALTHY, healthy, verdict_of, write


@pytest.mark.parametrize("name", HEALTHY[:8])
def test_read_and_written_again_it_is_the_same(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "a.jsonl", healthy(name))
    events: list[AnyEvent] = [item for batch in read_items(source) for item in batch if not isinstance(item, Broken)]
    with TraceWriter(tmp_path / "b.jsonl") as writer:
        for start in range(0, len(events), 7):
            writer.write(events[start : start + 7])
        assert writer.num_events == len(events)
    again = [item for batch in read_items(tmp_path / "b.jsonl") for item in batch]
    assert again == events
    assert not replay_items(read_items(tmp_path / "b.jsonl")).violations


def test_counters_are_the_writers(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "b.jsonl") as writer:
        writer.write([Commit(n=77, req="a", at=1, len=1, ids=[3])])
        writer.write([Commit(n=77, req="a", at=2, len=2, ids=[3])])
    assert [item.n for batch in read_items(tmp_path / "b.jsonl") for item in batch] == [0, 1]


def test_an_event_costs_microseconds(tmp_path: Path) -> None:
    """A generous bound, for busy machines; benchmarks/trace_replay.py measures."""
    events: list[AnyEvent] = [Fwd(n=0, req="r1", pos=(70, 71), slots=[1130], kv=71) for _ in range(64)]
    with TraceWriter(tmp_path / "b.jsonl") as writer:
        begin = time.process_time()
        for _ in range(300):
            writer.write(events)
        took = time.process_time() - begin
    assert took / (300 * 64) < 20e-6
    assert verdict_of(tmp_path / "c.jsonl", []).num_events == 0
