"""`degarble probe` as a command: options, secrets, and how it ends where nobody answers."""

from __future__ import annotations

import json

import pytest

from degarble.cli.app import run
from degarble.cli.probe import seconds, secret
from degarble.errors import UsageError

NOBODY = "http://127.0.0.1:9"


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["probe", NOBODY, "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "error" and document["target"] == {"path": NOBODY, "kind": "endpoint", "formats": []}


def test_a_key_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PROBE_KEY", "sk-secret-abc")
    assert secret("PROBE_KEY") == "sk-secret-abc"
    assert run(["probe", NOBODY, "--api-key-env", "PROBE_KEY"]) == 2
    shown = capsys.readouterr()
    assert "sk-secret-abc" not in shown.out + shown.err
    assert run(["probe", NOBODY, "--api-key-env", "PROBE_KEY_THAT_IS_NOT_SET"]) == 2
    assert "not set" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("60s", 60), ("5m", 300), ("1.5", 1.5)])
def test_budgets(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["", "s", "-5s", "5h", "0", "1e9", "nan", "٣s", "1.2.3"])
def test_no_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="--budget"):
        seconds(text)


def test_an_unknown_rule() -> None:
    assert run(["probe", NOBODY, "--select", "CKP101"]) == 2
