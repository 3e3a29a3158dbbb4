"""`degarble inject` on traces: a new file with one fault that `degarble trace` names first, and a record beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.cli.app import run
from tests.trace.traces import FOLDER

HEALTHY = FOLDER / "healthy-plain16.jsonl"


def test_planted_recorded_and_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "broken.jsonl"
    before = HEALTHY.read_bytes()
    assert run(["inject", "slot-off-by-one", str(HEALTHY), "--out", str(out), "--at", "60"]) == 0
    record = json.loads((tmp_path / "broken.jsonl.fault.json").read_text())
    assert record["rule"] == "KVC602" and record["location"]["line"] >= 60 and HEALTHY.read_bytes() == before
    capsys.readouterr()
    assert run(["trace", str(out), "--format", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    first = next(finding for finding in report["findings"] if finding["role"] == "cause")
    assert first["rule"] == record["rule"] and first["location"]["line"] == record["location"]["line"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken.jsonl", "broken.jsonl.fault.json"]


def test_a_rule_id_names_its_first_fault_and_seeds_choose(tmp_path: Path) -> None:
    lines = set()
    for seed in range(6):
        out = tmp_path / f"{seed}.jsonl"
        assert run(["inject", "KVC607", str(HEALTHY), "--out", str(out), "--seed", str(seed)]) == 0
        lines.add(json.loads(Path(f"{out}.fault.json").read_text())["location"]["line"])
    assert len(lines) > 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["no-such-fault", "HEALTHY"], "no trace fault is called"),
        (["slot-off-by-one", "HEALTHY", "--at", "100000"], "nothing suitable from event 100000 on"),
        (["strides-of-another-layout", "HEALTHY", "--at", "5"], "has no moment"),
        (["pointer-moved", "HEALTHY"], "cannot be planted"),
        (["slot-off-by-one", "BROKEN"], "is not healthy: KVC605"),
        (["slot-off-by-one", "missing.jsonl"], "No such file"),
        (["slot-off-by-one", "EMPTY"], "no KV-cache trace"),
    ],
)
def test_what_cannot_be_planted_is_said(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"")
    names = {"HEALTHY": str(HEALTHY), "BROKEN": str(FOLDER / "fault-double-free.jsonl"), "EMPTY": str(empty)}
    out = tmp_path / "out.jsonl"
    assert run(["inject", *(names.get(word, word) for word in words), "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists() and [path.name for path in tmp_path.iterdir()] == ["empty.jsonl"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text("mine")
    assert run(["inject", "slot-off-by-one", str(HEALTHY), "--out", str(out)]) == 2 and out.read_text() == "mine"


def test_a_checkpoint_has_no_moments(golden: Path, tmp_path: Path) -> None:
    assert run(["inject", "CKP101", str(golden / "base-bf16"), "--out", str(tmp_path / "x"), "--at", "3"]) == 2
