"""Profiles: every number comes from the file, overlaps are notes, and a trace beside them is joined by step."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from degarble.api import trace
from degarble.finding import Severity
from degarble.report.interface import Report, Status
from degarble.trace_readers.decimal_style import integer_of, is_decimal_comma, number_of, triple_of
from tests.trace.traces import Fields, healthy, write
from tests.trace_readers.recordings import PROFILES, READER, WRITER, nsys_database


def judged(*paths: Path) -> Report:
    report = trace(paths)
    assert report.summary["crashed"] == 0
    return report


def measured(report: Report) -> str:
    return next(told for what, told in report.unjudged.items() if "measured by" in what or "the profile" in what)


@pytest.mark.parametrize("name", ["ncu-long", "ncu-wide"])
def test_nsight_compute(name: str) -> None:
    report = judged(PROFILES / f"{name}.csv")
    assert report.findings == () and report.status is Status.PARTIAL
    told = measured(report)
    assert "2 launches of 2 kernels, 1 of which write a KV cache and 1 read one" in told
    for said in (
        "grids 1 × [5, 1, 1], L1 hit rate % 12.5, DRAM bytes read 1.215e+06",
        "[4, 2, 1], L1 hit rate % 65.77",
    ):
        assert said in told


def test_a_european_locale_gives_the_same_numbers(tmp_path: Path) -> None:
    text = (PROFILES / "ncu-long.csv").read_text()
    for english, european in (("12.50", "12,50"), ("1,215,000.00", "1.215.000,00"), ("65.77", "65,77")):
        text = text.replace(english, european)
    path = tmp_path / "ncu.csv"
    path.write_text(text)
    assert "L1 hit rate % 12.5, DRAM bytes read 1.215e+06" in measured(judged(path))


def test_styles_of_numbers() -> None:
    assert (
        is_decimal_comma(["27.595.520", "1"]) and is_decimal_comma(["65,77"]) and not is_decimal_comma(["1,234", "12"])
    )
    assert (
        number_of("1,215,000,000.00", has_comma=False) == 1_215_000_000 and number_of("65,77", has_comma=True) == 65.77
    )
    assert integer_of("27.595.520", has_comma=True) == 27_595_520 and number_of("1 234,5", has_comma=True) == 1234.5
    assert [number_of(text, has_comma=False) for text in ("n/a", "", "nan", "1e999", "1_0", "x" * 99)] == [None] * 6
    assert triple_of("(256, 1, 1)") == (256, 1, 1) == triple_of("256 x 1 x 1") and triple_of("(1, 2)") is None


def test_cuda_gpu_trace_and_its_overlap() -> None:
    report = judged(PROFILES / "cuda-gpu-trace.csv")
    (found,) = report.findings
    assert (found.rule, found.severity, found.location.line) == ("KVC617", Severity.INFO, 4)
    assert "for another 300 ns" in found.message and "a possibility, not a fault" in found.message
    assert "1 times, 500 ns each, grids 1 × [5, 1, 1]" in measured(report)


def test_nsight_systems(tmp_path: Path) -> None:
    path = tmp_path / "p.sqlite"
    nsys_database(
        path,
        [(WRITER, 1000, 1500, 7, (5, 1, 1), 900), (READER, 1600, 1900, 7, (4, 2, 1), 950)],
        lost="CUDA events were dropped",
    )
    report = judged(path)
    assert report.findings == () and "dropped" in report.unjudged["events that the profiler lost"]
    assert "2 launches of 2 kernels" in measured(report)


@pytest.mark.parametrize(
    ("second", "copies", "is_found"),
    [
        ((READER, 1400, 1900, 8, (4, 2, 1), 950), [], True),
        ((READER, 1400, 1900, 7, (4, 2, 1), 950), [], False),
        ((READER, 1500, 1900, 8, (4, 2, 1), 950), [], False),
        (("gemm", 1400, 1900, 8, (4, 2, 1), 950), [], False),
        (("gemm", 1400, 1900, 8, (4, 2, 1), 950), [(1200, 1300, 13, 2)], True),
        (("gemm", 1400, 1900, 8, (4, 2, 1), 950), [(1200, 1300, 13, 1)], False),
        ((WRITER, 1400, 1900, 8, (4, 2, 1), 950), [], False),
    ],
)
def test_only_a_reader_on_another_stream_is_a_possibility(
    second: tuple[str, int, int, int, tuple[int, int, int], int],
    copies: list[tuple[int, int, int, int]],
    is_found: bool,
    tmp_path: Path,
) -> None:
    """Same stream, after its end, another kernel, a copy to the device and a second writer are silent."""
    path = nsys_database(tmp_path / "p.sqlite", [(WRITER, 1000, 1500, 7, (5, 1, 1), 900), second], copies=copies)
    report = judged(path)
    assert [(f.rule, f.severity) for f in report.findings] == [("KVC617", Severity.INFO)] * is_found
    assert report.exit_code() == 0


def test_times_that_run_backwards(tmp_path: Path) -> None:
    path = nsys_database(tmp_path / "p.sqlite", [("gemm", 1000, 900, 7, (1, 1, 1), 900)])
    (found,) = judged(path).findings
    assert found.rule == "KVC623" and "ends at 900, before it begins at 1000" in found.message


STEPS = 8


def steps_of(events: tuple[Fields, ...]) -> list[tuple[int, str, int]]:
    """Counter of the begin, name and tokens of the first steps."""
    found: list[tuple[int, str, int]] = []
    for event in events:
        if event["ev"] == "step" and event["ph"] == "B":
            found.append((event["n"], str(event["step"]), 0))
        elif event["ev"] == "fwd":
            begin, name, tokens = found[-1]
            found[-1] = (begin, name, tokens + event["pos"][1] - event["pos"][0])
    return [step for step in found if step[2]][:STEPS]


def profile_of(path: Path, extra: int = 0, **facts: int) -> tuple[Path, list[tuple[int, str, int]]]:
    """A profile of the first steps, whose kernels run after the range that asked for them; one step has other blocks."""
    steps = steps_of(healthy("healthy-plain16"))
    kernels, ranges = [], []
    for at, (_, name, tokens) in enumerate(steps):
        start = 10_000 * (at + 1)
        ranges.append((f"execute_model step={name}", start, start + 1000))
        blocks = tokens + (extra if at == 3 else 0)
        kernels.append((WRITER, start + 5000, start + 5500, 7, (blocks, 1, 1), start + 100))
        kernels.append((READER, start + 6000, start + 7500, 7, (4, 2, 1), start + 200))
    return nsys_database(path, kernels, ranges, epoch=facts.get("epoch")), steps


@pytest.mark.parametrize(("extra", "rule"), [(0, None), (-1, "KVC626"), (3, "KVC603")])
def test_thread_blocks_against_tokens(extra: int, rule: str | None, tmp_path: Path) -> None:
    path, steps = profile_of(tmp_path / "p.sqlite", extra)
    report = judged(write(tmp_path / "t.jsonl", healthy("healthy-plain16")), path)
    assert f"{STEPS} of" in measured(report) and "steps are named by an NVTX range" in measured(report)
    assert [finding.rule for finding in report.findings] == ([] if rule is None else [rule])
    if rule is not None:
        begin, name, tokens = steps[3]
        found = report.findings[0]
        assert (found.location.line, found.location.file) == (begin, "t.jsonl") and f"step {name}" in found.message
        assert found.severity == ("error" if extra < 0 else "info") and found.bound == {"tokens": tokens}


def test_a_violation_names_the_kernels_of_its_step(tmp_path: Path) -> None:
    path, steps = profile_of(tmp_path / "p.sqlite")
    events = [dict(event) for event in healthy("healthy-plain16")]
    at = next(i for i, event in enumerate(events) if event["ev"] == "fwd" and event["n"] > steps[4][0])
    events[at]["kv"] += 1
    found = judged(write(tmp_path / "t.jsonl", events), path).causes[0].finding
    assert (
        found.rule == "KVC626"
        and f"; step {steps[4][1]} launched void vllm::reshape_and_cache_flash_kernel" in found.message
    )


def test_steps_are_joined_by_time_where_no_range_names_them(tmp_path: Path) -> None:
    epoch = 1_790_000_000_000_000_000
    path, steps = profile_of(tmp_path / "p.sqlite", epoch=epoch)
    with sqlite3.connect(path) as base:
        base.execute(
            "UPDATE StringIds SET value = 'execute_model step=' || (id + 5000) WHERE value LIKE 'execute_model%'"
        )
    times = {name: epoch + 10_000 * (at + 1) + 10 for at, (_, name, _) in enumerate(steps)}
    events = [
        event | ({"ts": times[str(event["step"])]} if event["ev"] == "step" and str(event["step"]) in times else {})
        for event in healthy("healthy-plain16")
    ]
    told = measured(judged(write(tmp_path / "t.jsonl", events), path))
    assert f"{STEPS} of" in told and "lie in a range of the profile by UTC time" in told


def test_a_profile_of_another_run_is_said_not_to_fit(tmp_path: Path) -> None:
    path = nsys_database(tmp_path / "p.sqlite", [(WRITER, 1000, 1500, 7, (5, 1, 1), 900)], [("warm-up", 0, 10)])
    report = judged(write(tmp_path / "t.jsonl", healthy("healthy-plain16")), path)
    assert "named by an NVTX range (`step N`), and times share no clock" in measured(report) and report.findings == ()


def test_columns_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "small.sqlite"
    with sqlite3.connect(path) as base:
        base.executescript(
            'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, name TEXT);'
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1, 2, 'paged_attention_v1');"
        )
    assert "paged_attention_v1: 1 times" in measured(judged(path))
