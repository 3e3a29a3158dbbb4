"""`show` and `--profile`: the numbers behind the value rules, drawn and as data."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from degarble.cli.app import run
from degarble.cli.show import bars


def test_bars_follow_the_values() -> None:
    assert bars([0, 4, 8]) == " ▄█"
    assert bars([1.0, math.inf, math.nan]) == "█!!"
    assert bars([]) == ""
    assert bars([-2.0, -1.0])[-1] == "█"


def test_a_quantised_module_is_drawn(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(golden / "gptqmodel-gptq-sym-g128")
    assert run(["show", "model.layers.0.mlp.down_proj", target]) == 0
    shown = capsys.readouterr().out
    assert "gptq (4-bit int, group 128)" in shown and "codes" in shown and "rms by layer (2 peers" in shown
    assert run(["show", "model.layers.0.mlp.down_proj.qweight", target]) == 0
    assert capsys.readouterr().out == shown


def test_a_wrong_name_is_answered_with_near_ones(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "down_proj", str(golden / "base-bf16")]) == 2
    assert "did you mean model.layers.0.mlp.down_proj" in capsys.readouterr().err


def test_profile_is_in_the_report_only_when_asked_for(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = str(golden / "gptqmodel-gptq-sym-g128")
    run(["check", target, "--format", "json"])
    assert "profile" not in json.loads(capsys.readouterr().out)
    run(["check", target, "--format", "json", "--profile"])
    row = json.loads(capsys.readouterr().out)["profile"]["model.layers.1.self_attn.q_proj"]
    assert row["layer"] == 1 and row["format"] == "gptq" and len(row["codes"]["histogram"]) == 16
    assert row["values"]["rms"] > 0 and row["scales"]["zeros"] == 0


def test_a_sample_says_partial(golden: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(golden / "base-bf16"), "--format", "json", "--sample"])
    report = json.loads(capsys.readouterr().out)
    assert report["status"] == "partial"
    assert any(item["what"] == "--sample" for item in report["unjudged"])
    assert run(["check", str(golden / "base-bf16"), "--sample", "--exhaustive"]) == 2
