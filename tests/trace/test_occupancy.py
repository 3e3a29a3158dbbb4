"""The grid of held blocks: the numbers of a plain count, whatever the width of its columns; ids of no pool are not drawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.trace.occupancy import MAX_COLUMNS, MAX_ROWS, Occupancy, read_occupancy
from degarble.trace.reader import read_items
from degarble.trace.replay import replay_items
from tests.trace.long_trace import write_long
from tests.trace.traces import Fields, healthy, write


def drawn(path: Path) -> Occupancy:
    return read_occupancy(str(path), replay_items(read_items(path), file=path.name))


def counted(events: tuple[Fields, ...] | list[Fields]) -> list[int]:
    """Blocks held after each event, by a plain count."""
    tables: dict[int, int] = {}
    found = []
    for event in events:
        by = {"alloc": 1, "ref": 1, "free": -1}.get(event["ev"], 0)
        for block in event["b"] if by else ():
            tables[block] = tables.get(block, 0) + by
        found.append(sum(count > 0 for block, count in tables.items() if block >= 0))
    return found


@pytest.mark.parametrize("name", ["healthy-plain16", "healthy-window", "forks", "tight"])
def test_peaks_are_those_of_a_plain_count(name: str, tmp_path: Path) -> None:
    events = healthy(name)
    one = drawn(write(tmp_path / "t.jsonl", events))
    held = counted(events)
    assert one.num_events == len(events) and one.peaks.size <= MAX_COLUMNS
    for column, peak in enumerate(one.peaks):
        begin, end = one.events_of(column)
        assert peak == max([held[begin - 1] if begin else 0, *held[begin:end]]), column
    assert one.blocks_a_row == 1 and (one.grid.sum(axis=0) >= one.peaks).all()


def test_a_long_trace_is_a_picture_of_the_same_size(tmp_path: Path) -> None:
    one = drawn(write_long(tmp_path / "t.jsonl", 12_000))
    assert one.grid.shape == (-(-512 // one.blocks_a_row), one.peaks.size) and one.blocks_a_row == 6
    assert one.events_a_column == 50 and one.peaks.size == MAX_COLUMNS


def test_marks_lie_in_the_column_of_their_event(tmp_path: Path) -> None:
    events = [dict(event) for event in healthy("healthy-plain16")]
    at = next(index for index, event in enumerate(events) if event["ev"] == "fwd" and index > 60)
    events[at]["kv"] += 1
    one = drawn(write(tmp_path / "t.jsonl", events))
    assert [
        (mark.violation.rule, one.events_of(mark.column)[0] <= at < one.events_of(mark.column)[1]) for mark in one.marks
    ] == [("KVC626", True)]


def test_a_pool_without_a_declared_size_grows(tmp_path: Path) -> None:
    meta = {"ev": "meta", "schema": 1, "block_size": 16}
    events: list[Fields] = [meta, {"ev": "req", "req": "r", "op": "new", "ids": [1]}]
    ids = [0, 1, 100, 1000, 90_000, -3, 1 << 60]
    events += [{"ev": "alloc", "req": "r", "b": [block]} for block in ids]
    one = drawn(write(tmp_path / "t.jsonl", [event | {"n": n} for n, event in enumerate(events)]))
    assert not one.is_declared and one.num_blocks == 90_001 and one.num_rows <= MAX_ROWS
    assert one.num_ignored == 2 and int(one.peaks[-1]) == 5


def test_an_empty_and_a_broken_trace(tmp_path: Path) -> None:
    one = drawn(write(tmp_path / "t.jsonl", [{"n": 0, "ev": "meta", "schema": 1}]))
    assert int(one.peaks.max()) == 0 and one.num_events == 1
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"?\n" * 30)
    assert len(drawn(path).marks) >= 30
