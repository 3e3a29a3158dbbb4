"""`degarble trace` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from degarble.cli.app import run
from degarble.trace_readers.interface import readers
from tests.cli.test_commands import SCHEMA
from tests.trace.traces import FOLDER
from tests.trace_readers.recordings import as_frames, vllm_batches

FAULTS = sorted(path.name for path in FOLDER.glob("fault-*.jsonl"))


@pytest.mark.parametrize("name", FAULTS)
def test_json_report_and_minimal_trace(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tmp_path / "small.jsonl"
    assert run(["trace", str(FOLDER / name), "--format", "json", "--minimal", str(small)]) == 1
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert run(["trace", str(small), "--format", "json"]) == 1
    again = json.loads(capsys.readouterr().out)
    mine, theirs = (next(f for f in r["findings"] if f["role"] == "cause") for r in (report, again))
    assert mine["rule"] == theirs["rule"] and mine["measured"] == theirs["measured"]
    for key in ("request", "block", "slot", "position"):
        assert mine["location"].get(key) == theirs["location"].get(key)
    lines = small.read_text().splitlines()
    assert len(lines) < len((FOLDER / name).read_text().splitlines())
    assert json.loads(lines[theirs["location"]["line"]])["was"] == mine["location"]["line"]


def test_healthy_is_status_0_and_only_trace_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace", str(FOLDER / "healthy-plain16.jsonl"), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "ok" and report["target"]["kind"] == "kv-trace"
    listed = {check["rule"]: check for check in report["checks"]}
    assert all(rule.startswith("KVC") or rule == "WGT224" for rule in listed)
    assert listed["KVC610"] == {"rule": "KVC610", "outcome": "skipped", "reason": "the trace has no graph events"}
    assert listed["KVC602"]["outcome"] == "ok"


@pytest.mark.parametrize("ending", ["html", "json"])
def test_timeline(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"timeline.{ending}"
    assert run(["trace", str(FOLDER / "fault-cow-skipped.jsonl"), "-q", "--timeline", str(out)]) == 1
    text = out.read_text()
    if ending == "json":
        names = {event["name"].split()[0] for event in json.loads(text)["traceEvents"]}
        assert {"cache_index", "position_id"} <= names
    else:
        assert "KVC604" in text and text.count("<polyline") >= 2 and "http://" not in text
        assert text.count("<script") == text.count('<script type="application/json"') == 1


def test_files_of_other_tools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "events"
    path.write_bytes(as_frames(vllm_batches()[:9]))
    assert run(["trace", str(path), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert report["status"] == "partial" and report["unjudged"][0]["what"] == "KV events"
    assert run(["trace", str(path), "--from", "kv-events", "--fail-on", "partial"]) == 1
    assert run(["trace", str(path), "--from", "pcap"]) == 2
    assert run(["trace", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert all(name in told for name in readers())


def test_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["trace"]) == 2
    assert run(["trace", str(tmp_path / "absent")]) == 2
    assert run(["trace", str(FOLDER / "healthy-spec.jsonl"), "--select", "KVC999"]) == 2
    assert run(["trace", str(FOLDER / "fault-cow-skipped.jsonl"), "--ignore", "KVC604"]) == 0
    assert run(["trace", str(FOLDER / "healthy-spec.jsonl"), "--minimal", str(tmp_path / "m")]) == 0
    capsys.readouterr()
    assert run(["trace", str(tmp_path / "absent"), "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["status"] == "error"
