"""The providers: coverage, sampling, exhaustive runs, and profiles kept between runs."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from degarble.evidence import Evidence, Settings
from degarble.evidence import profiles as providers
from degarble.target import open_target

NAME = "llm-compressor-w4a16-gptq-asym-g128"


def evidence_of(folder: Path, **settings: Any) -> Evidence:
    return Evidence(open_target(folder), replace(Settings(), **settings))


def test_every_tensor_has_a_profile(golden: Path) -> None:
    evidence = evidence_of(golden / NAME)
    assert set(evidence.get("profiles")) == set(evidence.get("tensors"))
    assert not evidence.coverage.unjudged


def test_joint_profiles_come_in_the_order_of_layers(golden: Path) -> None:
    found = evidence_of(golden / NAME).get("joint")
    assert [(one.layer, sorted(one.modules)) for one in found] == [
        (layer, parts) for layer in (0, 1) for parts in (["down", "gate", "up"], ["k", "o", "q", "v"])
    ]
    assert all(one.gate_up is None or one.gate_up > 3 for one in found)


def test_some_experts_by_default_and_all_if_asked(golden: Path) -> None:
    folder = golden / "moe-qwen3moe-llmc-w4a16-g64"
    some, every = (evidence_of(folder, exhaustive=flag).get("joint") for flag in (False, True))
    count = {name: sum(one.expert is not None for one in found) for name, found in (("some", some), ("all", every))}
    assert 0 < count["some"] < count["all"]
    assert len({(one.layer, one.expert) for one in some if one.expert is not None}) == count["some"]


def test_a_sample_makes_the_report_partial(golden: Path) -> None:
    evidence = evidence_of(golden / NAME, sample=True)
    evidence.get("profiles")
    assert "--sample" in evidence.coverage.unjudged


def test_a_tensor_that_cannot_be_read_is_covered(golden: Path, tmp_path: Path) -> None:
    folder = tmp_path / "short"
    shutil.copytree(golden / NAME, folder)
    os.truncate(folder / "model.safetensors", (folder / "model.safetensors").stat().st_size - 100)
    evidence = evidence_of(folder)
    missing = set(evidence.get("tensors")) - set(evidence.get("profiles"))
    assert len(missing) == 1
    assert missing <= set(evidence.coverage.unjudged)


def test_a_cache_is_used_once_and_dropped_when_the_file_changes(
    golden: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, cache = tmp_path / "model", str(tmp_path / "cache")
    shutil.copytree(golden / NAME, folder)
    calls: list[str] = []

    def counted(name: str, slow: Any) -> Any:
        def run(*positional: Any, **named: Any) -> Any:
            calls.append(name)
            return slow(*positional, **named)

        return run

    for name in ("profile_tensors", "profile_modules"):
        monkeypatch.setattr(providers, name, counted(name, getattr(providers, name)))
    first = evidence_of(folder, cache=cache)
    wanted = dict(first.get("profiles")), dict(first.get("module_profiles"))
    second = evidence_of(folder, cache=cache)
    assert second.get("module_profiles") == wanted[1]
    for name, profile in second.get("profiles").items():
        assert repr(profile) == repr(wanted[0][name])
        assert all(
            (one == other).all()
            for (_, one), (_, other) in zip(profile.row_tops, wanted[0][name].row_tops, strict=True)
        )
    assert calls == ["profile_tensors", "profile_modules"]
    os.utime(folder / "model.safetensors", ns=(1, 1))
    evidence_of(folder, cache=cache).get("profiles")
    assert calls[2:] == ["profile_tensors"]


def test_a_damaged_cache_is_ignored(golden: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    evidence_of(golden / NAME, cache=str(cache)).get("profiles")
    (kept,) = cache.glob("*.profile")
    kept.write_bytes(kept.read_bytes()[:50])
    assert len(evidence_of(golden / NAME, cache=str(cache)).get("profiles")) > 10
    assert not list(cache.glob("*.partial"))


def test_header_level_reads_no_values(golden: Path) -> None:
    from degarble.registry import Level

    evidence = evidence_of(golden / NAME, level=Level.HEADER)
    assert evidence.find("profiles") is None
