"""`degarble replay`: what the same or other ids say, and bundles that are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.cli import app
from degarble_engine.cli import replay as command
from degarble_engine.telemetry.replayed_bundle import replay_bundle
from tests.conftest import unpacked_golden
from tests.degarble_engine.telemetry.test_incident import incident


@pytest.fixture(autouse=True)
def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "joined_commands", lambda: [command])


def test_the_same_ids_and_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, ids = incident(tmp_path)
    model = str(unpacked_golden() / "base-bf16")
    found = replay_bundle(str(path), model)
    assert found.replayed.first_difference is None and found.recorded.output_ids == tuple(ids)
    assert "weights, tables or arithmetic" in found.told()
    facts = json.loads((path / "incident.json").read_bytes())
    facts["request"]["content"]["output_ids"][2] ^= 1
    (path / "incident.json").write_text(json.dumps(facts))
    assert app.run(["replay", str(path), "--model", model, "--format", "json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["first_difference"] == 2 and "state of the server" in document["told"]


def test_ids_that_the_model_lacks_and_options_of_another_kind_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, _ = incident(tmp_path)
    model = str(unpacked_golden() / "base-bf16")
    facts = json.loads((path / "incident.json").read_bytes())
    facts["request"]["content"]["prompt_ids"][0] = 10**9
    (path / "incident.json").write_text(json.dumps(facts))
    assert app.run(["replay", str(path), "--model", model]) == 2
    assert "token ids" in capsys.readouterr().err
    facts["engine"]["block_size"] = "many"
    (path / "incident.json").write_text(json.dumps(facts))
    assert app.run(["replay", str(path), "--model", model]) == 2
    assert "engine" in capsys.readouterr().err


def test_no_incident(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["replay", str(tmp_path), "--model", str(tmp_path)]) == 2
    assert "incident.json" in capsys.readouterr().err
