"""`degarble overflow` from the outside: lengths, lanes, the command, and what it says of strange input."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from safetensors.numpy import save_file

from degarble.cli import app
from degarble.engines.arithmetic import EngineArithmetic, engine_arithmetic, engine_arithmetics
from degarble.errors import TargetError, UsageError
from degarble.report.overflow import overflow_lines
from degarble_engine.cli import overflow as overflow_command
from degarble_engine.overflow.question import OverflowQuestion, overflow, read_lengths
from degarble_engine.overflow.switches import lanes_of
from tests.degarble_engine.tiny_models import folder

SCHEMA = json.loads((files("degarble.data") / "report.schema.json").read_text())


def test_lengths_double() -> None:
    assert read_lengths("512..4k") == (512, 1024, 2048, 4096)
    assert read_lengths("100,16..40") == (16, 32, 40, 100)


@pytest.mark.parametrize("text", ["", "0", "32k..512", "1..2..3", "abc", "-5", "999999", "128k"])
def test_lengths_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--lengths"):
        read_lengths(text)


def test_every_cell_has_a_source_or_says_that_it_has_none() -> None:
    for name, profile in engine_arithmetics().items():
        assert isinstance(profile, EngineArithmetic)
        for key, cell in profile.cells():
            assert bool(cell.source) != bool(cell.unverified), (name, key)
    with pytest.raises(UsageError, match=r"expected exllamav3, half-norm, llama\.cpp"):
        engine_arithmetic("tgi")


def test_equal_arithmetics_are_one_lane() -> None:
    lanes = lanes_of(["fp16"])
    assert sorted(name for lane in lanes for name in lane.engines) == sorted(engine_arithmetics())
    assert len({lane.switches for lane in lanes}) == len(lanes)


def test_strange_targets_are_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "bert", "vocab_size": 10}')
    save_file({"bert.x": np.zeros(4, np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(TargetError, match="model_type 'bert': BertModel has no list of decoder layers"):
        overflow(str(tmp_path), OverflowQuestion())
    with pytest.raises(UsageError, match="--dtype 'fp12'"):
        overflow(str(tmp_path), OverflowQuestion(dtypes=("fp12",)))


def test_the_command_prints_one_document(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(app, "joined_commands", lambda: [overflow_command])
    words = ("overflow", str(folder("llama")), "--lengths", "8..32", "--dtype", "float16", "--format", "json")
    status = app.run(list(words))
    shown = capsys.readouterr()
    report = json.loads(shown.out)
    assert status == 0, shown.err
    jsonschema.validate(report, SCHEMA)
    rows = report["comparison"]["rows"]
    assert {row["engine"] for row in rows} == set(engine_arithmetics())
    assert rows[0]["lengths"] == {"8": True, "16": True, "32": True}
    assert {check["rule"] for check in report["checks"]} == {"NUM302", "NUM304", "NUM305", "NUM309"}
    assert any("safe length" in line for line in overflow_lines(report["comparison"]))


def test_a_damaged_report_is_still_shown() -> None:
    assert list(overflow_lines({"rows": [3, {"engine": None}], "peaks": "x", "advice": 5}))
    assert list(overflow_lines({"advice": {"dtype": [], "upcast": 5, "rescale": None}}))
