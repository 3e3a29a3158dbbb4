"""Observations of a KV connector: batches become forwards, and a fault in a batch is found at its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.api import trace
from degarble.report.interface import Report, Status
from tests.trace_readers.recordings import as_lines, observations

Fields = dict[str, Any]


def judged(tmp_path: Path, events: list[Fields]) -> Report:
    path = tmp_path / "seen.jsonl"
    path.write_bytes(as_lines(events))
    report = trace([path])
    assert report.summary["crashed"] == 0
    return report


def batch_with(events: list[Fields], *, rows: int = 1, after: int = 60) -> int:
    """Index of the first layer's attention of a late batch with a request of so many rows."""
    return next(
        index
        for index, event in enumerate(events)
        if index > after and event["ev"] == "attn" and ".0." in event["layer"] and event["starts"][1] == rows
    )


@pytest.mark.parametrize("flavour", ["plain", "tight", "drafts", "window", "odd-size", "forks"])
def test_healthy(flavour: str, tmp_path: Path) -> None:
    report = judged(tmp_path, observations(flavour))
    assert report.findings == () and report.status is Status.PARTIAL
    skipped = {result.rule: str(result.reason) for result in report.results if result.outcome == "skipped"}
    assert "no position ids" in skipped["KVC607"] and "no position ids" in skipped["KVC610"]
    assert {"KVC602", "KVC604", "KVC606", "KVC626"}.isdisjoint(skipped)


def test_two_files_are_joined_by_step(tmp_path: Path) -> None:
    events = observations("plain")
    worker = [event for event in events if event["ev"] in ("meta", "step", "attn")]
    scheduler = [event for event in events if event["ev"] != "attn"]
    paths = []
    for name, part in (("w.jsonl", worker), ("s.jsonl", scheduler)):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(as_lines([event | {"n": n} for n, event in enumerate(part)]))
    assert trace(paths).findings == ()
    at = batch_with(worker, after=20)
    worker[at]["seq_lens"][0] += 1
    paths[0].write_bytes(as_lines([event | {"n": n} for n, event in enumerate(worker)]))
    first = trace(paths).causes[0].finding
    assert (first.location.file, first.location.line) == ("w.jsonl", at)


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("KVC602", lambda event: event["slots"].__setitem__(0, event["slots"][0] + 1)),
        ("KVC626", lambda event: event["seq_lens"].__setitem__(0, event["seq_lens"][0] + 1)),
        ("KVC602", lambda event: event["tables"][0].__setitem__(0, event["tables"][0][0] + 1)),
        ("KVC603", lambda event: event["slots"].__setitem__(-1, 79)),
        ("KVC623", lambda event: event["starts"].pop()),
        ("KVC623", lambda event: event["starts"].__setitem__(-1, 10_000)),
        ("KVC623", lambda event: event["reqs"].__setitem__(0, "stranger")),
    ],
)
def test_a_fault_in_the_first_layer(rule: str, change: Any, tmp_path: Path) -> None:
    events = observations("plain")
    at = batch_with(events)
    change(events[at])
    first = judged(tmp_path, events[: at + 1]).causes[0].finding
    assert (first.rule, first.location.line) == (rule, at), first.message


def test_a_layer_that_is_given_other_slots(tmp_path: Path) -> None:
    events = observations("plain")
    at = batch_with(events) + 1
    events[at]["slots"][0] += 1
    (found,) = judged(tmp_path, events).findings
    assert (found.rule, found.location.line) == (
        "KVC602",
        at,
    ) and "layers.1.self_attn.attn is given other slots" in found.message


def test_without_attention_nothing_is_clean(tmp_path: Path) -> None:
    report = judged(tmp_path, [event for event in observations("plain") if event["ev"] != "attn"][:30])
    assert "attention" in report.unjudged and report.status is not Status.OK


def test_gaps_and_broken_lines(tmp_path: Path) -> None:
    events = observations("plain")
    report = judged(tmp_path, events[:40] + events[41:])
    assert {finding.rule for finding in report.findings} >= {"KVC623"} and report.causes[0].finding.location.line == 41
    path = tmp_path / "seen.jsonl"
    lines = as_lines(events).splitlines()
    for bad in (b"?", b"[]", b'{"n":40,"ev":"attn","step":1}', b'{"n":40,"ev":7}', b"\xff"):
        lines[40] = bad
        path.write_bytes(b"\n".join(lines))
        first = trace([path]).causes[0].finding
        assert (first.rule, first.location.line) == ("KVC623", 40), bad
