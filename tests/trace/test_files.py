"""Several files of one run: ranks, and a scheduler with its worker."""

from __future__ import annotations

from pathlib import Path

from degarble.api import trace
from degarble.report.interface import Status
from tests.trace.simulator import Options, Simulator
from tests.trace.traces import Fields, healthy, write

WORKER = ("fwd", "graph", "copy", "xfer", "state", "shift", "crc", "scale")


def split(events: tuple[Fields, ...]) -> tuple[list[Fields], list[Fields]]:
    """A scheduler's and a worker's file, joined by step events."""
    scheduler = [event for event in events if event["ev"] not in WORKER]
    worker = [event for event in events if event["ev"] in (*WORKER, "meta", "step")]
    return [[{**event, "n": n} for n, event in enumerate(part)] for part in (scheduler, worker)]  # type: ignore[return-value]


def test_scheduler_and_worker_are_joined_by_step(tmp_path: Path) -> None:
    for name in ("healthy-plain16", "healthy-spec", "healthy-window", "drafts", "states"):
        scheduler, worker = split(healthy(name))
        files = [write(tmp_path / "w.jsonl", worker), write(tmp_path / "s.jsonl", scheduler)]
        report = trace(files)
        assert not report.findings, (name, report.findings[0].message)
        index = next(i for i, event in enumerate(worker) if event["ev"] == "fwd" and i > 30)
        worker[index]["kv"] += 1
        write(files[0], worker)
        first = trace(files).causes[0].finding
        assert (first.rule, first.location.file, first.location.line) == ("KVC626", "w.jsonl", index)


def test_asynchronous_steps_are_joined(tmp_path: Path) -> None:
    scheduler, worker = split(healthy("healthy-async"))
    files = [write(tmp_path / "s.jsonl", scheduler), write(tmp_path / "w.jsonl", worker)]
    assert not trace(files).findings


def ranks(tmp_path: Path, given: tuple[int, ...]) -> list[Path]:
    files = []
    for number, rank in enumerate(given):
        events = Simulator(3, Options(cp=2, rank=rank, has_prefix_cache=False)).run(200)
        files.append(write(tmp_path / f"rank{number}.jsonl", events))
    return files


def test_context_parallel_ranks(tmp_path: Path) -> None:
    assert trace(ranks(tmp_path, (0, 1))).status is Status.OK
    assert trace(ranks(tmp_path, (1,))).status is Status.OK
    twice = trace(ranks(tmp_path, (1, 1)))
    assert twice.causes[0].finding.rule == "KVC622"


def test_a_gap_in_one_of_two_files_names_the_file(tmp_path: Path) -> None:
    scheduler, worker = split(healthy("healthy-plain16"))
    del worker[20]
    files = [write(tmp_path / "s.jsonl", scheduler), write(tmp_path / "w.jsonl", worker)]
    first = trace(files).causes[0].finding
    assert (first.rule, first.location.file, first.location.line) == ("KVC623", "w.jsonl", 21)
