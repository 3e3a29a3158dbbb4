"""Hostile and broken files: a clear result at the right line, with bounded memory, never a traceback."""

from __future__ import annotations

import json
import resource
from pathlib import Path
from typing import Any

import pytest

from degarble.api import trace
from degarble.report.interface import Report, Status
from degarble.trace.reader import MAX_LINE_BYTES, READ_BYTES
from tests.trace.traces import healthy


def lines_of(name: str = "healthy-plain16") -> list[bytes]:
    return [json.dumps(event).encode() for event in healthy(name)]


def judge(tmp_path: Path, lines: list[bytes]) -> Report:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    report = trace([path])
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    return report


def first(report: Report) -> tuple[str, int | None]:
    return report.causes[0].finding.rule, report.causes[0].finding.location.line


@pytest.mark.parametrize(
    "line",
    [
        b"not json",
        b"[1, 2]",
        b"17",
        b'{"ev": "fwd"',
        b"\xff\xfe\x00binary",
        b'{"n": 40, "ev": "alloc", "req": "r2"}',
        b'{"n": 40, "ev": "alloc", "req": "r2", "b": 3}',
        b'{"n": 40, "ev": "fwd", "req": "r2", "pos": [0], "slots": [], "kv": 0}',
        b'{"n": 40, "ev": 3}',
        b'{"n": 40}',
        b'{"ev": "step", "ph": "B", "step": 3}',
        b'{"n": 40, "ev": "req", "req": "r2", "op": "dance"}',
        b'{"n": 40, "ev": "step", "ph": "X", "step": 3}',
        b'{"n": "40", "ev": "step", "ph": "B", "step": 3}',
        b'{"n": 40, "ev": "crc", "slot": NaN, "crc": "a"}',
    ],
)
def test_a_malformed_line_is_found_at_its_line(line: bytes, tmp_path: Path) -> None:
    lines = lines_of()
    lines[40] = line
    assert first(judge(tmp_path, lines)) == ("KVC623", 40)


def test_checking_goes_on_behind_a_malformed_line(tmp_path: Path) -> None:
    lines = lines_of("healthy-spec")
    lines.insert(3, b"%%%")
    index = next(i for i, line in enumerate(lines) if b'"fwd"' in line and i > 60)
    event = json.loads(lines[index])
    event["kv"] += 1
    lines[index] = json.dumps(event).encode()
    found = {(f.rule, f.location.line) for f in judge(tmp_path, lines).findings}
    assert found == {("KVC623", 3), ("KVC626", event["n"])}


def test_a_missing_meta_line_is_found_at_0(tmp_path: Path) -> None:
    assert first(judge(tmp_path, lines_of()[1:])) == ("KVC623", 1)
    first_is_broken = [b"?", *lines_of()[1:]]
    assert first(judge(tmp_path, first_is_broken)) == ("KVC623", 0)


@pytest.mark.parametrize("schema", [2, "1", None, True, 1.5, [1]])
def test_an_unknown_schema_is_an_error(schema: Any, tmp_path: Path) -> None:
    meta = json.loads(lines_of()[0]) | {"schema": schema}
    report = judge(tmp_path, [json.dumps(meta).encode(), *lines_of()[1:]])
    if schema is None:
        assert first(report) == ("KVC623", 0)
    else:
        assert report.status is Status.ERROR and report.exit_code() == 2 and "schema" in str(report.failure)


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 5000, b"\x89PNG\r\n\x1a\n" * 999, b"\n\n\n", b"[" * 100_000, b"hello\n" * 50]
)
def test_what_is_no_trace_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    report = trace([path])
    assert report.status is Status.ERROR and report.exit_code() == 2


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    assert trace([tmp_path / "absent.jsonl"]).exit_code() == 2
    assert trace([tmp_path]).exit_code() == 2


def test_unknown_events_and_fields_are_told_once(tmp_path: Path) -> None:
    lines = lines_of()
    for index in (20, 21, 30):
        event = json.loads(lines[index])
        lines.insert(index, json.dumps({"n": 0, "ev": "weather", "sun": [event]}).encode())
    lines = [json.dumps(json.loads(line) | {"n": n, "extra": {"a": 1}}).encode() for n, line in enumerate(lines)]
    report = judge(tmp_path, lines)
    assert [(f.rule, f.location.line, f.severity) for f in report.findings] == [("KVC623", 20, "info")]
    assert report.status is Status.OK


def test_a_trace_that_ends_early_is_silent(tmp_path: Path) -> None:
    lines = lines_of("healthy-async")
    for end in range(5, len(lines), 9):
        assert not judge(tmp_path, lines[:end]).findings


def test_a_line_cut_in_the_middle_is_found(tmp_path: Path) -> None:
    lines = lines_of()[:50]
    lines[-1] = lines[-1][: len(lines[-1]) // 2]
    assert first(judge(tmp_path, lines)) == ("KVC623", 49)


def test_absurd_numbers_are_findings(tmp_path: Path) -> None:
    for fields in (
        {"ev": "alloc", "req": "r1", "b": [10**30]},
        {"ev": "alloc", "req": "r1", "b": [1 << 62]},
        {"ev": "alloc", "req": "r1", "b": [9], "at": 1 << 60},
        {"ev": "fwd", "req": "r1", "pos": [0, 1 << 60], "slots": [16], "kv": 1 << 60},
        {"ev": "fwd", "req": "r1", "pos": [1 << 60, (1 << 60) + 1], "slots": [16], "kv": 1},
        {"ev": "copy", "src": 1, "dst": 9, "rows": [0, 1 << 60]},
        {"ev": "commit", "req": "r1", "at": 1 << 60, "len": 1 << 60, "ids": [3]},
        {"ev": "hit", "req": "r1", "h": ["a"], "b": [1], "tok": 1 << 60},
        {"ev": "crc", "slot": -5, "crc": "a"},
        {"ev": "xfer", "id": "x", "ph": "B", "dir": "load", "b": [-7]},
    ):
        report = judge(tmp_path, [*lines_of()[:3], json.dumps({"n": 3, **fields}).encode()])
        assert report.causes, fields
        assert report.causes[0].finding.location.line == 3
        from degarble.report.json import render

        render(report)


def test_a_huge_block_size_and_pool_cost_nothing(tmp_path: Path) -> None:
    meta = json.loads(lines_of()[0]) | {"block_size": 1 << 40, "num_blocks": 1 << 50, "groups": None}
    report = judge(tmp_path, [json.dumps(meta).encode(), *lines_of()[1:]])
    assert first(report) == ("KVC623", 0)


def test_deep_nesting_is_a_finding(tmp_path: Path) -> None:
    lines = lines_of()
    lines[30] = b'{"n": 30, "ev": "scale", "value": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    assert first(judge(tmp_path, lines)) == ("KVC623", 30)


def test_a_line_of_100_mb_is_skipped_in_bounded_memory(tmp_path: Path) -> None:
    lines = lines_of()
    path = tmp_path / "t.jsonl"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with path.open("wb") as stream:
        stream.write(b"\n".join(lines[:40]) + b"\n")
        for _ in range(100):
            stream.write(b"x" * 1_000_000)
        stream.write(b"\n" + b"\n".join(lines[40:]) + b"\n")
    report = trace([path])
    assert {(f.rule, f.location.line) for f in report.findings} == {("KVC623", 40)}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 4 * MAX_LINE_BYTES


def test_lines_across_read_blocks_are_whole(tmp_path: Path) -> None:
    events = [json.loads(line) for line in lines_of()]
    long = {"n": 0, "ev": "req", "req": "long", "op": "new", "ids": list(range(READ_BYTES)), "ns": {}}
    events.insert(5, long)
    lines = [json.dumps(event | {"n": n}).encode() for n, event in enumerate(events)]
    assert not judge(tmp_path, lines).findings


def test_nan_in_a_scale_is_a_scale_and_no_broken_line(tmp_path: Path) -> None:
    lines = lines_of()
    scale = {"ev": "scale", "layer": 2, "part": "k", "value": float("nan"), "used_on": ["write", "read"]}
    lines.insert(1, json.dumps(scale).encode())
    lines = [json.dumps(json.loads(line) | {"n": n}).encode() for n, line in enumerate(lines)]
    report = judge(tmp_path, lines)
    assert first(report) == ("WGT224", 1) and report.causes[0].finding.location.layer == 2
