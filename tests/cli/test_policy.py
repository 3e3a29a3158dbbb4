"""Waivers, baselines and configuration files, as the command line sees them."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.cli.app import run
from degarble.target import open_target

TENSOR = "model.layers.0.mlp.up_proj.weight"


@pytest.fixture
def sick(golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkpoint with a zero matrix, in an empty working directory with a repository's root."""
    work = Workspace(open_target(golden / "base-bf16"))
    work.set(TENSOR, np.zeros(work.holder(TENSOR).tensors[TENSOR].shape, np.float32))
    work.save(tmp_path / "sick")
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "sick"


def document(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    """What was printed, held against the schema."""
    printed = capsys.readouterr().out
    assert run(["schema"]) == 0
    jsonschema.validate(found := json.loads(printed), json.loads(capsys.readouterr().out))
    assert isinstance(found, dict)
    return found


def test_a_baseline_lets_the_gate_pass_until_something_changes(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(sick)]) == 1
    assert run(["check", str(sick), "--write-baseline", "known.json"]) == 0
    capsys.readouterr()
    assert run(["check", str(sick), "--baseline", "known.json", "--format", "json"]) == 0
    found = document(capsys)
    assert found["findings"] == [] and found["accepted"]
    work = Workspace(open_target(sick))
    work.drop("model.layers.1.mlp.up_proj.weight")
    work.save(sick.parent / "sicker")
    assert run(["check", str(sick.parent / "sicker"), "--baseline", "known.json"]) == 1


def test_a_waiver_in_the_project_s_file(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("pyproject.toml").write_text('[tool.degarble]\nwaivers = "waivers.toml"\n')
    Path("waivers.toml").write_text('[[waiver]]\nrule = "WGT204"\nscope = "*up_proj*"\nreason = "an experiment"\n')
    assert run(["check", str(sick), "--select", "WGT204", "--format", "json"]) == 0
    assert document(capsys)["waivers"] == [
        {"rule": "WGT204", "scope": "*up_proj*", "reason": "an experiment", "state": "used"}
    ]
    assert run(["check", str(sick), "--select", "WGT204"]) == 0
    assert "accepted (1 by waiver)" in capsys.readouterr().out
    assert run(["check", str(sick), "--select", "WGT204", "--isolated"]) == 1


def test_an_expired_waiver_is_told(sick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.toml").write_text('[[waiver]]\nrule = "WGT204"\nscope = "*"\nreason = "x"\nexpires = 2020-01-01\n')
    assert run(["check", str(sick), "--select", "WGT204", "--waivers", "w.toml"]) == 1
    assert "waiver expired: WGT204" in capsys.readouterr().out


def test_files_set_what_fails_and_a_flag_beats_them(sick: Path) -> None:
    Path("degarble.toml").write_text('select = ["WGT204"]\n[rules.WGT204]\nseverity = "warning"\n')
    assert run(["check", str(sick)]) == 0
    assert run(["check", str(sick), "--fail-on", "warning"]) == 1
    Path("degarble.toml").write_text('[rules.WGT204]\nseverity = "off"\n')
    assert run(["check", str(sick), "--select", "WGT204"]) == 2


@pytest.mark.parametrize("text", ["fail-on = 3", "nonsense = 1", "[rules.WGT999]"])
def test_a_broken_file_is_no_pass(sick: Path, text: str) -> None:
    Path("degarble.toml").write_text(text)
    assert run(["check", str(sick)]) == 2
    assert run(["settings"]) == 2
