"""Every foreign format, mutated: a report with a place, or an error that names the file; never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.api import trace
from degarble.errors import TargetError, UsageError
from degarble.report.interface import Report, Status
from degarble.report.json import render
from degarble.trace_readers.interface import ForeignVerdict, readers
from degarble.trace_readers.source import open_trace
from tests.hostile.mutation import damaged_bytes, damaged_tree
from tests.trace_readers.recordings import (
    CANARY_HEAD,
    PROFILES,
    READER,
    WRITER,
    as_frames,
    as_json_document,
    as_json_lines,
    as_lines,
    as_payloads,
    canary_violation,
    nsys_database,
    observations,
    sglang_batches,
    vllm_batches,
)


def database(folder: Path) -> bytes:
    kernels = [
        (name, at * 1000, at * 1000 + 900, 7 + at % 2, (5, 1, 1), at * 1000)
        for at, name in enumerate([WRITER, READER] * 3)
    ]
    return nsys_database(folder / "p.sqlite", kernels, [("step 1", 0, 9000)], [(500, 900, 13, 2)]).read_bytes()


QUICK = settings(max_examples=100, deadline=None, database=None, derandomize=True)
FORMS: dict[str, tuple[str, Callable[[Path], bytes]]] = {
    "frames": ("kv-events", lambda _: as_frames(vllm_batches(steps=150)[:2])),
    "payloads": ("kv-events", lambda _: as_payloads(sglang_batches(steps=150)[:2])),
    "json-lines": ("kv-events", lambda _: as_json_lines(vllm_batches(as_bytes=False, steps=150)[:2])),
    "json-document": ("kv-events", lambda _: as_json_document(vllm_batches(as_bytes=False, steps=150)[:1])),
    "connector": ("kv-connector", lambda _: as_lines(observations("plain")[:40])),
    "canary": ("sglang-canary", lambda _: (CANARY_HEAD + canary_violation("chain_hash+position")).encode()),
    "ncu-long": ("nsight-compute", lambda _: (PROFILES / "ncu-long.csv").read_bytes()),
    "ncu-wide": ("nsight-compute", lambda _: (PROFILES / "ncu-wide.csv").read_bytes()),
    "cuda-gpu-trace": ("nsight-systems-csv", lambda _: (PROFILES / "cuda-gpu-trace.csv").read_bytes()),
    "sqlite": ("nsight-systems", database),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("samples")
    return {name: make(folder) for name, (_, make) in FORMS.items()}


def is_sound(report: Report, path: Path) -> None:
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    if report.status is Status.ERROR:
        assert str(path) in str(report.failure)
    for finding in report.findings:
        assert finding.location.line is not None or finding.severity == "info", finding
    render(report)


def is_sound_verdict(path: Path, form: str) -> None:
    """The same for many files: the reader alone, since what follows it is one for all."""
    try:
        verdict = open_trace([str(path)], form).verdict
    except TargetError as error:
        assert str(path) in str(error)
        return
    assert isinstance(verdict, ForeignVerdict) and verdict.unjudged
    assert all(isinstance(violation.line, int) for violation in verdict.violations)


def test_every_reader_is_mutated() -> None:
    assert {reader for reader, _ in FORMS.values()} == set(readers())


@pytest.mark.parametrize("name", FORMS)
def test_samples_are_recognised(name: str, samples: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "sample"
    path.write_bytes(samples[name])
    forced, free = trace([path], form=FORMS[name][0]), trace([path])
    assert forced.failure is None and free.unjudged == forced.unjudged
    assert {f.rule for f in free.findings} <= {"KVC606", "KVC617"}


@pytest.mark.parametrize("name", FORMS)
def test_mutated(name: str, samples: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "mutated"

    @given(damaged_bytes(samples[name]))
    @QUICK
    def run(data: bytes) -> None:
        path.write_bytes(data)
        is_sound_verdict(path, FORMS[name][0])

    run()


@pytest.mark.parametrize("encode", [as_frames, as_json_lines])
def test_mutated_batches(encode: Callable[[Any], bytes], tmp_path: Path) -> None:
    """Values of every type at every place of well-formed batches."""
    path = tmp_path / "mutated"
    maps = msgspec.to_builtins(vllm_batches(as_bytes=False, steps=200)[:2])
    arrays = msgspec.to_builtins(sglang_batches(steps=200)[:2])

    @given(st.sampled_from([maps, arrays]).flatmap(damaged_tree))
    @QUICK
    def run(tree: Any) -> None:
        try:
            data = encode(tree)
        except OverflowError:  # an integer that msgpack cannot hold
            return
        path.write_bytes(data)
        is_sound_verdict(path, "kv-events")

    run()


def test_mutated_observations(tmp_path: Path) -> None:
    path = tmp_path / "mutated"

    @given(damaged_tree(list(observations("plain")[:16])))
    @QUICK
    def run(tree: Any) -> None:
        path.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in tree))
        is_sound_verdict(path, "kv-connector")

    run()


@pytest.mark.parametrize("form", sorted(readers()))
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        b"\x00" * 5000,
        b"[" * 100_000,
        b"{" * 100_000,
        b"\x91" * 100_000,
        b"SQLite format 3\0" + b"x" * 4096,
        b"a,b\n" * 99,
    ],
    ids=["empty", "lines", "nul", "lists", "objects", "msgpack lists", "half a database", "table"],
)
def test_what_is_none_of_it(form: str, data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "none"
    path.write_bytes(data)
    report = trace([path], form=form)
    is_sound(report, path)
    assert report.status is Status.ERROR or any(finding.rule == "KVC623" for finding in report.findings)
    is_sound(trace([path]), path)


@pytest.mark.parametrize("form", [None, *sorted(readers())])
def test_absent_files_and_folders(form: str | None, tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path):
        assert trace([path], form=form).exit_code() == 2


def test_usage(samples: dict[str, bytes], tmp_path: Path) -> None:
    paths = []
    for name in ("frames", "canary"):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(samples[name])
    with pytest.raises(UsageError, match="cannot be read together"):
        trace(paths)
    with pytest.raises(UsageError, match="degarble, kv-connector, kv-events"):
        trace(paths, form="pcap")


def test_a_long_line_is_skipped_in_bounded_memory(samples: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "long"
    lines = samples["json-lines"].splitlines(keepends=True)
    with path.open("wb") as stream:
        stream.writelines(lines[:2])
        for _ in range(20):
            stream.write(b"x" * (1 << 20))
        stream.writelines([b"\n", *lines[2:]])
    report = trace([path])
    assert [(f.rule, f.location.line) for f in report.findings] == [("KVC623", 2)]
