"""The commands, from the outside: what they print, where, and with which status."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from degarble.cli.app import run
from degarble.faults.interface import faults
from degarble.registry import rules, rules_on
from degarble.report.text import WIDTH
from degarble.trace_faults.interface import trace_faults

SCHEMA = json.loads((files("degarble.data") / "report.schema.json").read_text())


@pytest.fixture
def broken(golden: Path, tmp_path: Path) -> Path:
    """A checkpoint with one planted fault, on disk."""
    out = tmp_path / "broken"
    assert run(["inject", "CKP101", str(golden / "base-bf16"), "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("name", ["base-bf16", "llama.cpp-q4_0", "moe-mixtral-llmc-w4a16-g64", "quanto-int8"])
def test_json_report_fits_its_schema(name: str, golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["check", str(golden / name), "--format", "json"])
    report = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, SCHEMA)
    assert status == (1 if report["summary"]["error"] else 0)
    assert [check["rule"] for check in report["checks"]] == sorted(rules_on())
    assert {cause["finding"] for cause in report["causes"]} <= {finding["id"] for finding in report["findings"]}


def test_failure_document_fits_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", "/nowhere", "--format", "json"]) == 2
    jsonschema.validate(json.loads(capsys.readouterr().out), SCHEMA)


def test_inject_leaves_a_record_and_check_finds_the_fault(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = json.loads((broken / "fault.json").read_text())
    assert record["rule"] == "CKP101" and record["location"]["file"] == "model.safetensors"
    capsys.readouterr()
    assert run(["check", str(broken), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["causes"][0]["rule"] == "CKP101"
    assert report["causes"][0]["story"] and report["causes"][0]["predicts"] and report["causes"][0]["confirm"]
    assert report["findings"][0]["measured"]["missing_bytes"] > 0


def test_inject_refuses_to_overwrite(broken: Path, golden: Path) -> None:
    assert run(["inject", "CKP101", str(golden / "base-bf16"), "--out", str(broken)]) == 2
    assert run(["inject", "no-such-fault", str(golden / "base-bf16"), "--out", str(broken) + "2"]) == 2
    assert not Path(str(broken) + "2").exists()


def test_text_report_fits_the_terminal(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(broken)]) == 1
    shown = capsys.readouterr().out
    assert "error CKP101 shard-truncated" in shown and "repair" in shown
    assert "\x1b[" not in shown
    long = [line for line in shown.splitlines() if len(line) > WIDTH and "/" not in line]
    assert not long


def test_quiet_and_verbose(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(broken), "-q"])
    quiet = capsys.readouterr().out
    run(["check", str(broken), "-v"])
    verbose = capsys.readouterr().out
    assert len(quiet.splitlines()) == 2
    assert "skipped:" in verbose and len(verbose) > len(quiet)


def test_output_goes_to_a_file(broken: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "report.json"
    assert run(["check", str(broken), "--format", "json", "--output", str(target)]) == 1
    assert capsys.readouterr().out == ""
    assert json.loads(target.read_text())["status"] == "findings"
    assert run(["check", str(broken), "--output", str(tmp_path / "no" / "such" / "folder")]) == 2


def test_select_and_ignore(broken: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(broken), "--select", "CFG,QNT101", "--format", "json"]) in (0, 1)
    chosen = {check["rule"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "QNT101" in chosen and not any(rule.startswith("CKP") for rule in chosen)
    assert run(["check", str(broken), "--ignore", "CKP101", "--format", "json"]) in (0, 1)
    left = {check["rule"] for check in json.loads(capsys.readouterr().out)["checks"]}
    assert left == set(rules_on()) - {"CKP101"}


def test_explain_by_id_and_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", "ckp101"]) == 0
    by_id = capsys.readouterr().out
    assert run(["explain", "shard-truncated"]) == 0
    assert capsys.readouterr().out == by_id
    assert "## How to repair it" in by_id
    assert run(["explain", "CKP999"]) == 2


def test_rules_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["rules", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {(row["id"], row["name"], row["severity"]) for row in listed} == {
        (rule.id, rule.name, rule.checks[0].severity.value) for rule in rules().values()
    }
    assert run(["rules", "CKP"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines and all(line.startswith("CKP") and len(line) <= WIDTH for line in lines)


def test_every_fault_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inject", "--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(faults()) + len(trace_faults())


def test_demo_names_the_planted_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo"]) == 0
    assert "The planted fault is the first cause." in capsys.readouterr().out


def test_schema_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))
