"""What users type, and what is opened for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.errors import TargetError, UsageError
from degarble.target import open_target


def test_parts_of_a_split_gguf_are_opened_together(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"m-{number:05d}-of-00003.gguf").write_bytes(b"GGUF")
    (tmp_path / "m-other.gguf").write_bytes(b"GGUF")
    source = open_target(tmp_path / "m-00002-of-00003.gguf")
    assert sorted(source.files()) == [f"m-{number:05d}-of-00003.gguf" for number in (1, 2, 3)]
    assert source.read("m-00003-of-00003.gguf", 1, 2) == b"GU"


def test_a_folder_with_several_gguf_models_asks_which(tmp_path: Path) -> None:
    for name in ("a-Q4.gguf", "a-Q8.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="2 GGUF models"):
        open_target(tmp_path)


@pytest.mark.parametrize("name", ["x" * 300, "nowhere", "a\0b", ""])
def test_paths_that_lead_nowhere_are_refused_in_words(name: str) -> None:
    with pytest.raises((TargetError, UsageError)) as failure:
        open_target(name)
    assert str(failure.value)


def test_kinds(golden: Path) -> None:
    assert open_target(golden / "base-bf16").kind == "hf-folder"
    assert open_target(golden / "llama.cpp-q4_0").kind == "gguf"
    assert open_target(golden / "base-bf16" / "model.safetensors").kind == "safetensors"
    assert open_target(next((golden / "llama.cpp-q4_0").glob("*.gguf"))).kind == "gguf"
