"""`degarble stamp`: a report and tags beside the weights, the same bytes on the second run, weights never touched."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import jsonschema
import pytest

from degarble.cli.app import run
from tests.cli.test_commands import SCHEMA


@pytest.fixture
def model(golden: Path, tmp_path: Path) -> Path:
    """A copy of a healthy checkpoint."""
    return Path(shutil.copytree(golden / "base-bf16", tmp_path / "model"))


def state(folder: Path) -> dict[str, tuple[str, int]]:
    """Digest and time of change of every file."""
    return {
        path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_mtime_ns)
        for path in sorted(folder.iterdir())
    }


def test_a_healthy_model_is_stamped(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "README.md").write_text("---\nlicense: mit\ntags:\n- tiny\n---\n# Tiny\n")
    before = state(model)
    assert run(["stamp", str(model)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote degarble-report.json",
        "wrote README.md",
        "nothing wrong found",
    ]
    report = json.loads((model / "degarble-report.json").read_text())
    jsonschema.validate(report, SCHEMA)
    assert report["status"] == "ok" and report["target"]["path"] == "."
    assert (model / "README.md").read_text() == (
        "---\nlicense: mit\ntags:\n- tiny\n- degarble\n- degarble-ok\n---\n# Tiny\n"
    )
    after = state(model)
    assert {name: after[name] for name in before if name != "README.md"} == {
        name: value for name, value in before.items() if name != "README.md"
    }
    assert set(after) == {*before, "degarble-report.json"}


def test_a_second_stamp_changes_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["stamp", str(model)]) == 0
    before = state(model)
    monkeypatch.chdir(model)
    assert run(["stamp", "."]) == 0
    assert state(model) == before
    assert "the stamp is up to date" in capsys.readouterr().out


def test_the_tag_follows_the_status(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stamp", str(model), "--level", "header"]) == 0
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert run(["stamp", str(model), "--level", "header"]) == 1
    card = (model / "README.md").read_text()
    assert card == "---\ntags:\n- degarble\n- degarble-findings\n---\n"
    assert json.loads((model / "degarble-report.json").read_text())["status"] == "findings"


def test_without_the_card(model: Path) -> None:
    assert run(["stamp", str(model), "--no-card", "--level", "header"]) == 0
    assert not (model / "README.md").exists() and (model / "degarble-report.json").exists()


def test_a_single_file_is_stamped_beside_itself(golden: Path, tmp_path: Path) -> None:
    source = next((golden / "llama.cpp-q4_0").glob("*.gguf"))
    shutil.copy(source, tmp_path / "tiny.gguf")
    assert run(["stamp", str(tmp_path / "tiny.gguf"), "--level", "header"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "degarble-report.json", "tiny.gguf"]


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
def test_a_link_is_replaced_and_not_written_through(model: Path, tmp_path: Path) -> None:
    """A snapshot of the hub's cache is links to blobs, which other snapshots share."""
    blob = tmp_path / "blob"
    blob.write_text("# Tiny\n")
    (model / "README.md").symlink_to(blob)
    assert run(["stamp", str(model), "--level", "header"]) == 0
    assert blob.read_text() == "# Tiny\n"
    assert not (model / "README.md").is_symlink() and "- degarble\n" in (model / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("README.md", b"\xff\xfe", "not UTF-8"),
        ("README.md", b"---\ntags: {}\n---\n", "expected a list"),
        ("SHA256SUMS", b"0" * 64 + b"  README.md\n", "--no-card"),
    ],
)
def test_what_may_not_be_edited_is_left_alone(
    name: str, data: bytes, words: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / name).write_bytes(data)
    before = state(model)
    assert run(["stamp", str(model), "--level", "header"]) == 2
    assert words in capsys.readouterr().err
    assert state(model) == before


def test_what_cannot_be_checked_is_not_stamped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["stamp", "hf:org/name", "--level", "header"]) == 2
    (tmp_path / "notes.txt").write_text("x")
    assert run(["stamp", str(tmp_path)]) == 2
    assert run(["stamp", str(tmp_path), "--fail-on", "never"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]
    assert "nothing was written" in capsys.readouterr().err


def test_a_stamped_model_is_as_healthy_as_before(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["check", str(model), "--format", "json", "--level", "header"])
    before = json.loads(capsys.readouterr().out)
    run(["stamp", str(model), "--level", "header"])
    capsys.readouterr()
    run(["check", str(model), "--format", "json", "--level", "header"])
    assert json.loads(capsys.readouterr().out) == before
