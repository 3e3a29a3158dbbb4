"""`degarble fix` as it is typed: statuses, one document, and nothing written where nothing should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from degarble.cli.app import run
from tests.conftest import unpacked_golden
from tests.repairing.folders import contents, rewrite, sick_copy

GPTQ, SHARDED = "gptqmodel-gptq-sym-g128", "own-sharded-bf16"


@pytest.fixture
def sick(tmp_path: Path) -> str:
    """A group size that the shapes contradict."""
    return str(sick_copy("group-size-halved", GPTQ, tmp_path / "sick"))


def test_a_plan_writes_nothing(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fix", sick, "--plan", "--level", "header"]) == 0
    shown = capsys.readouterr().out
    assert "1. correct-quantization-config (safe)" in shown and "nothing was written" in shown
    assert [path.name for path in tmp_path.iterdir()] == ["sick"]


def test_a_plan_is_replayed(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The document of --plan is a plan that --replay takes."""
    assert run(["fix", sick, "--plan", "--level", "header", "--format", "json"]) == 0
    plan = tmp_path / "plan.json"
    plan.write_text(capsys.readouterr().out)
    out = str(tmp_path / "out")
    assert run(["fix", sick, "--replay", str(plan), "--level", "header", "--out", out]) == 0
    assert run(["check", out, "--level", "header"]) == 0


def test_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """1 where something is left, 2 where nothing could be done, and then nothing is written."""
    sick = sick_copy("shard-missing", SHARDED, tmp_path / "lost")
    assert run(["fix", str(sick), "--out", str(tmp_path / "a"), "--level", "header"]) == 2
    assert not (tmp_path / "a").exists() and "fetch model-0000" in capsys.readouterr().out
    config = json.loads((sick / "config.json").read_text())
    config["vocab_size"] *= 2
    rewrite(sick / "config.json", json.dumps(config))
    assert run(["fix", str(sick), "--out", str(tmp_path / "b"), "--level", "header"]) == 1
    assert json.loads((tmp_path / "b" / "config.json").read_text())["vocab_size"] * 2 == config["vocab_size"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["fix"],
        ["fix", "TARGET"],
        ["fix", "TARGET", "--out", "TARGET"],
        ["fix", "TARGET", "--plan", "--fail-on", "partial"],
        ["fix", "TARGET", "--plan", "--select", "XYZ"],
        ["fix", "TARGET", "--plan", "--level", "deep"],
        ["fix", "TARGET", "--plan", "--reference", "/nowhere"],
        ["fix", "TARGET", "--out", "NEW", "--replay", "/nowhere"],
        ["fix", "/nowhere", "--plan"],
        ["fix", "--undo", "TARGET"],
        ["fix", "--undo", "TARGET", "--out", "NEW"],
        ["fix", "TARGET", "--undo", "TARGET", "--out", "NEW"],
    ],
)
def test_failures_are_one_document(arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places = {"TARGET": str(unpacked_golden() / GPTQ), "NEW": str(tmp_path / "new")}
    assert run([*(places.get(word, word) for word in arguments), "--format", "json"]) == 2
    shown = capsys.readouterr()
    assert json.loads(shown.out)["error"] and "bug" not in shown.err
    assert not (tmp_path / "new").exists()


def test_there_and_back(sick: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixed, back = str(tmp_path / "fixed"), str(tmp_path / "back")
    assert run(["fix", sick, "--out", fixed, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["status"] == "repaired" and document["out"] == fixed
    assert document["after"]["summary"]["error"] == 0 and document["causes_before"] == ["QNT104"]
    assert run(["fix", "--undo", fixed, "--out", back, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "undone"
    assert contents(Path(back)) == contents(Path(sick))


def test_rules_are_chosen(sick: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fix", sick, "--plan", "--level", "header", "--ignore", "QNT104"]) == 0
    assert "correct-quantization-config" not in capsys.readouterr().out


def test_the_configuration_counts_here_too(
    sick: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is waived is left alone and does not fail; a threshold and a rule that is off hold as in check."""
    monkeypatch.chdir(tmp_path)
    arguments = ["fix", sick, "--plan", "--level", "header", "--format", "json"]
    assert run(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["causes_before"] == ["QNT104"] and found["steps"]
    waiver = '[[waiver]]\nrule = "QNT104"\nscope = "*"\nreason = "a test"\n'
    (tmp_path / "waivers.toml").write_text(waiver)
    (tmp_path / "degarble.toml").write_text('waivers = "waivers.toml"\n')
    assert run(arguments) == 0
    waived = json.loads(capsys.readouterr().out)
    assert waived["steps"] == [] and waived["causes_before"] == []
    assert [one["rule"] for one in waived["after"]["accepted"]] == ["QNT104"]
    assert run([*arguments, "--isolated"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == found["steps"]
    (tmp_path / "degarble.toml").write_text('fail-on = "partial"\n')
    assert run(arguments) == 2
    assert "degarble.toml" in capsys.readouterr().out
    (tmp_path / "degarble.toml").write_text('[rules.QNT104]\nseverity = "off"\n')
    assert run(arguments) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == []
