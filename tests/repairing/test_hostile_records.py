"""Records and plans from strangers: nothing is written outside the new folder, and nothing grows without bound."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.errors import DegarbleError
from degarble.evidence import Settings
from degarble.registry import Level
from degarble.repairing.fix import fix, undo
from degarble.repairing.undo import RECORD_FILE
from tests.repairing.folders import sick_copy

HEADER = Settings(level=Level.HEADER)


@pytest.fixture
def fixed(tmp_path: Path) -> Path:
    """A repaired copy whose record is then changed."""
    sick = sick_copy("group-size-halved", "gptqmodel-gptq-sym-g128", tmp_path / "sick")
    fix(sick, tmp_path / "fixed", settings=HEADER)
    return tmp_path / "fixed"


def rewrite(folder: Path, **changes: Any) -> None:
    """Change top-level keys of the record, in a file of its own so that no link is followed."""
    record = json.loads((folder / RECORD_FILE).read_text()) | changes
    (folder / RECORD_FILE).unlink()
    (folder / RECORD_FILE).write_text(json.dumps(record))


@pytest.mark.parametrize("name", ["../evil", "/tmp/degarble-evil", "a/../../evil", "..", ".", "", "x/\0y"])
def test_undo_writes_no_file_outside(fixed: Path, tmp_path: Path, name: str) -> None:
    rewrite(fixed, undo={name: [["config.json", 0, 10]]}, files={})
    with pytest.raises((DegarbleError, ValueError)):
        undo(fixed, tmp_path / "deep" / "back")
    assert not list(tmp_path.glob("**/evil")) and not Path("/tmp/degarble-evil").exists()
    assert not (tmp_path / "deep" / "back").exists()


@pytest.mark.parametrize(
    "piece",
    [
        ["../sick/config.json", 0, 10],
        ["/etc/hostname", 0, 4],
        ["config.json", 0, 1 << 60],
        ["config.json", -4, 10],
        ["config.json", 5, -1],
        ["config.json", 1 << 62, 1 << 62],
    ],
)
def test_undo_reads_only_its_own_files(fixed: Path, tmp_path: Path, piece: list[Any]) -> None:
    rewrite(fixed, undo={"config.json": [piece]}, files={})
    with pytest.raises(DegarbleError):
        undo(fixed, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_undo_promises_no_more_bytes_than_there_are(fixed: Path, tmp_path: Path) -> None:
    size = (fixed / "model.safetensors").stat().st_size
    rewrite(fixed, undo={"bomb": [["model.safetensors", 0, size]] * 10_000}, files={})
    with pytest.raises(DegarbleError, match="more bytes"):
        undo(fixed, tmp_path / "back")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema_version": 99, "tool": {}, "steps": []}', "\0", '{"steps": "x"}', "[" * 200]
)
def test_what_is_no_record(fixed: Path, tmp_path: Path, text: str) -> None:
    (fixed / RECORD_FILE).unlink()
    (fixed / RECORD_FILE).write_text(text)
    with pytest.raises(DegarbleError):
        undo(fixed, tmp_path / "back")
    with pytest.raises(DegarbleError):
        fix(fixed, tmp_path / "out", replay=fixed / RECORD_FILE, settings=HEADER)


@pytest.mark.parametrize(
    "step",
    [
        {"repair": "regenerate-index", "places": [{"file": "../evil.index.json"}]},
        {"repair": "reencode-config", "places": [{"file": "../../etc/passwd"}]},
        {"repair": "correct-config-key", "places": [{"file": "../evil.json", "key": "a.b"}]},
        {"repair": "remove-actorder", "places": [{"file": "/tmp/evil.json", "key": "a"}]},
        {"repair": "remove-doubled-file", "places": [{"tensor": "../evil"}]},
        {"repair": "no-such-repair", "places": [{"file": "config.json"}]},
        {"repair": "remove-actorder", "places": []},
        {"repair": "remove-actorder", "places": [{"__class__": "evil"}]},
        {"repair": "fetch-file", "places": [{"file": "../evil"}]},
    ],
)
def test_replay_writes_nothing_outside(fixed: Path, tmp_path: Path, step: dict[str, Any]) -> None:
    finding = {"rule": "CKP103", "places": step["places"]}
    rewrite(fixed, steps=[{"repair": step["repair"], "safe": True, "finding": finding, "edits": []}])
    with pytest.raises(DegarbleError):
        fix(tmp_path / "sick", tmp_path / "deep" / "out", replay=fixed / RECORD_FILE, settings=HEADER)
    assert not list(tmp_path.glob("**/evil*")) and not (tmp_path / "deep" / "out").exists()
