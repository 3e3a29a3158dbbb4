"""The whole play on the package's own model."""

from __future__ import annotations

import json

import pytest

from degarble.cli import app
from degarble.cli import joined as joined_entries
from degarble_engine.incident_demo import command


@pytest.mark.slow
def test_three_causes_three_proofs_and_healthy_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(joined_entries, "joined_module", lambda group, name: command)
    assert app.run(["demo", "incident", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    told = document["diagnosis"]
    assert len(document["causes"]) == 3
    assert {one["part"] for one in told["causes"]} == {"weights", "tokenizer", "kv cache"}
    kinds = {one["part"]: one["proof_kind"] for one in told["causes"]}
    assert kinds["weights"] == kinds["tokenizer"] == "counterfactual"
    (cache,) = (one for one in told["causes"] if one["part"] == "kv cache")  # so small a model may loop all the same
    assert (cache["proof_kind"] == "rule") == ("changes 0 of" in cache["proof"]) and "(proven)" in cache["proof"]
    text = told["healthy_text"]
    assert text["answers_as_healthy"] == text["answers"] and text["after"] == text["healthy"] != text["before"]


def test_another_demo_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["demo", "accident"]) == 2 and "demo incident" in capsys.readouterr().err
