"""`fix` and `undo` on disk: a new folder that is complete or absent, and a way back to the original bytes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from degarble.errors import TargetError, UsageError
from degarble.evidence import Settings
from degarble.registry import Level
from degarble.repairing import fix as fixing
from degarble.repairing.fix import fix, undo
from degarble.repairing.undo import RECORD_FILE, UNDO_FILE
from tests.conftest import unpacked_golden
from tests.repairing.folders import contents, rewrite, sick_copy

HEADER = Settings(level=Level.HEADER)
GPTQ, SHARDED = "gptqmodel-gptq-sym-g128", "own-sharded-bf16"


@pytest.fixture
def sick(tmp_path: Path) -> Path:
    """A group size that the shapes contradict."""
    return sick_copy("group-size-halved", GPTQ, tmp_path / "sick")


def test_a_repaired_copy_and_the_way_back(sick: Path, tmp_path: Path) -> None:
    before = contents(sick)
    outcome = fix(sick, tmp_path / "fixed", settings=HEADER)
    assert outcome.exit_code("error") == 0
    assert contents(sick) == before
    config = json.loads((tmp_path / "fixed" / "config.json").read_text())
    assert config["quantization_config"]["group_size"] == 128
    for name, is_linked in (("model.safetensors", True), ("generation_config.json", False)):
        assert ((tmp_path / "fixed" / name).stat().st_ino == (sick / name).stat().st_ino) == is_linked
    undo(tmp_path / "fixed", tmp_path / "back")
    assert contents(tmp_path / "back") == before


def test_the_record_says_what_was_done(sick: Path, tmp_path: Path) -> None:
    fix(sick, tmp_path / "fixed", settings=HEADER)
    record = json.loads((tmp_path / "fixed" / RECORD_FILE).read_text())
    (step,) = [step for step in record["steps"] if step["edits"][0]["file"] == "config.json"]
    assert step["repair"] == "correct-quantization-config" and step["safe"]
    assert (step["edits"][0]["before"], step["edits"][0]["after"]) == (64, 128)
    assert set(record["files"]["config.json"]) == {"before", "after"}
    assert record["tool"]["name"] == "degarble" and str(tmp_path) not in json.dumps(record)


def test_a_second_run_changes_nothing(sick: Path, tmp_path: Path) -> None:
    fix(sick, tmp_path / "fixed", settings=HEADER)
    outcome = fix(tmp_path / "fixed", tmp_path / "again", settings=HEADER)
    assert not outcome.plan.steps and outcome.exit_code("error") == 0
    assert contents(tmp_path / "again") == contents(tmp_path / "fixed")


def test_a_record_is_replayed_on_another_copy(sick: Path, tmp_path: Path) -> None:
    fix(sick, tmp_path / "fixed", settings=HEADER)
    other = sick_copy("group-size-halved", GPTQ, tmp_path / "other")
    fix(other, tmp_path / "replayed", replay=tmp_path / "fixed" / RECORD_FILE, settings=HEADER)
    assert contents(tmp_path / "replayed") == contents(tmp_path / "fixed")


def test_a_record_does_not_fit_a_copy_with_other_bytes(sick: Path, tmp_path: Path) -> None:
    fix(sick, tmp_path / "fixed", settings=HEADER)
    other = sick_copy("group-size-doubled", GPTQ, tmp_path / "other")
    with pytest.raises(UsageError, match="does not fit"):
        fix(other, tmp_path / "replayed", replay=tmp_path / "fixed" / RECORD_FILE, settings=HEADER)
    assert not (tmp_path / "replayed").exists()


def test_repairs_are_taken_back_in_turn(tmp_path: Path) -> None:
    """A safe run, then one with judgements on its result: two undos lead back to the first state."""
    sick = sick_copy("layer-declared-away", GPTQ, tmp_path / "once")
    config = json.loads((sick / "config.json").read_text())
    config["quantization_config"]["group_size"] = 64
    rewrite(sick / "config.json", json.dumps(config))
    before = contents(sick)
    fix(sick, tmp_path / "safe", settings=HEADER)
    middle = contents(tmp_path / "safe")
    second = fix(tmp_path / "safe", tmp_path / "both", settings=HEADER, unsafe=True)
    assert [step.is_safe for step in second.plan.steps] == [False] and second.exit_code("error") == 0
    undo(tmp_path / "both", tmp_path / "one-back")
    assert contents(tmp_path / "one-back") == middle
    undo(tmp_path / "one-back", tmp_path / "two-back")
    assert contents(tmp_path / "two-back") == before


def test_a_shard_comes_from_the_reference_without_reading_it_into_memory(tmp_path: Path) -> None:
    sick = sick_copy("shard-missing", SHARDED, tmp_path / "sick")
    fix(sick, tmp_path / "fixed", reference=unpacked_golden() / SHARDED, settings=HEADER)
    fixed, healthy = contents(tmp_path / "fixed"), contents(unpacked_golden() / SHARDED)
    assert {name: fixed[name] for name in healthy} == healthy
    undo(tmp_path / "fixed", tmp_path / "back")
    assert contents(tmp_path / "back") == contents(sick)


def test_a_reference_of_another_export_is_refused(tmp_path: Path) -> None:
    sick = sick_copy("scale-missing", GPTQ, tmp_path / "sick")
    outcome = fix(sick, tmp_path / "fixed", reference=unpacked_golden() / "base-bf16", settings=HEADER)
    assert outcome.exit_code("error") == 2 and outcome.out is None and not (tmp_path / "fixed").exists()
    (refused,) = [one for one in outcome.plan.refused if one.finding.rule == "QNT101"]
    assert "not the same export" in refused.reason


def test_what_cannot_be_repaired_says_what_to_fetch(tmp_path: Path) -> None:
    sick = sick_copy("shard-missing", SHARDED, tmp_path / "models--org--name" / "snapshots" / ("0" * 40))
    outcome = fix(sick, tmp_path / "fixed", settings=HEADER)
    assert outcome.exit_code("error") == 2 and not (tmp_path / "fixed").exists()
    (refused,) = outcome.plan.refused
    assert refused.fetch[0].endswith(f".safetensors of hf:org/name@{'0' * 40}")


def test_judgements_need_to_be_allowed(tmp_path: Path) -> None:
    sick = sick_copy("layer-declared-away", GPTQ, tmp_path / "sick")
    safe = fix(sick, settings=HEADER)
    assert not safe.plan.steps and "--unsafe" in safe.plan.refused[0].reason
    fix(sick, tmp_path / "fixed", settings=HEADER, unsafe=True)
    with pytest.raises(UsageError, match="--unsafe"):
        fix(sick, tmp_path / "other", settings=HEADER, replay=tmp_path / "fixed" / RECORD_FILE)


def test_never_in_place(sick: Path, tmp_path: Path) -> None:
    for out in (sick, sick / "below", tmp_path / "taken"):
        (tmp_path / "taken").mkdir(exist_ok=True)
        with pytest.raises(UsageError):
            fix(sick, out, settings=HEADER)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists"):
        fix(sick, tmp_path / "link", settings=HEADER)


def test_a_healthy_checkpoint_is_copied_as_it_is(tmp_path: Path) -> None:
    outcome = fix(unpacked_golden() / GPTQ, tmp_path / "out", settings=HEADER)
    assert outcome.exit_code("error") == 0 and not outcome.changed
    assert contents(tmp_path / "out") == contents(unpacked_golden() / GPTQ)


def test_one_gguf_file(tmp_path: Path) -> None:
    sick = sick_copy("shape-contradicts-config", "llama.cpp-q4_0", tmp_path / "sick")
    file = next(sick.glob("*.gguf"))
    before = file.read_bytes()
    outcome = fix(file, tmp_path / "fixed", settings=HEADER)
    assert outcome.exit_code("error") == 0
    assert (tmp_path / "fixed" / file.name).read_bytes() == next(
        (unpacked_golden() / "llama.cpp-q4_0").glob("*.gguf")
    ).read_bytes()
    undo(tmp_path / "fixed", tmp_path / "back")
    assert contents(tmp_path / "back") == {file.name: before}


def test_a_copy_that_fails_its_check_is_removed(sick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the disk had given back other bytes than were written."""

    def damaged(report: object, after: object) -> object:
        return [replace(report.findings[0], message="planted by the test")]  # type: ignore[attr-defined]

    monkeypatch.setattr(fixing, "new_findings", damaged)
    with pytest.raises(TargetError, match="planted by the test"):
        fix(sick, tmp_path / "fixed", settings=HEADER)
    assert sorted(os.listdir(tmp_path)) == ["sick"]


def test_an_undone_copy_that_was_changed_is_refused(sick: Path, tmp_path: Path) -> None:
    fix(sick, tmp_path / "fixed", settings=HEADER)
    kept = (tmp_path / "fixed" / UNDO_FILE).read_bytes()
    (tmp_path / "fixed" / UNDO_FILE).unlink()
    (tmp_path / "fixed" / UNDO_FILE).write_bytes(b"x" + kept[1:])
    with pytest.raises(TargetError, match="was changed since"):
        undo(tmp_path / "fixed", tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_checksum_lists_follow_the_repair(tmp_path: Path) -> None:
    """A right line about a file that a repair rewrites is not left behind wrong."""
    sick = sick_copy("zero-point-shape", "llm-compressor-w4a16-gptq-asym-g128", tmp_path / "sick")
    import hashlib

    digest = hashlib.sha256((sick / "model.safetensors").read_bytes()).hexdigest()
    (sick / "SHA256SUMS").write_text(f"{digest}  model.safetensors\n")
    outcome = fix(sick, tmp_path / "fixed")
    assert outcome.exit_code("warning") == 0
    written = hashlib.sha256((tmp_path / "fixed" / "model.safetensors").read_bytes()).hexdigest()
    assert (tmp_path / "fixed" / "SHA256SUMS").read_text() == f"{written}  model.safetensors\n"
