"""Edits never touch the original, cost only their own bytes, and appear on disk complete or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.rope import RopeSource, Segment, cut, literal
from degarble.checkpoint.shard_edit import GgufEdit
from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError


def workspace(path: Path) -> Workspace:
    """A workspace over a folder."""
    return Workspace(LocalFolder(path))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with two files."""
    folder = tmp_path / "small"
    folder.mkdir()
    tensors = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "b.weight": np.ones(4, np.int32)}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text('{"model_type": "llama"}')
    return folder


def test_tensor_edits_are_read_by_the_reference_library(small: Path, tmp_path: Path) -> None:
    work = workspace(small)
    work.rename("a.weight", "c.weight")
    work.drop("b.weight")
    work.add("model.safetensors", "d.bias", np.array([1.5], np.float16))
    work.save(tmp_path / "out")
    loaded = safetensors.numpy.load_file(tmp_path / "out" / "model.safetensors")
    assert set(loaded) == {"c.weight", "d.bias"}
    assert loaded["c.weight"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert loaded["d.bias"].dtype == np.float16


def test_the_original_is_untouched_and_unchanged_files_are_hard_links(small: Path, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in small.iterdir()}
    work = workspace(small)
    work.json("config.json")["model_type"] = "qwen2"
    work.save(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in small.iterdir()} == before
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {"model_type": "qwen2"}
    assert (tmp_path / "out" / "model.safetensors").stat().st_ino == (small / "model.safetensors").stat().st_ino


def test_save_refuses_an_existing_folder_and_leaves_no_partial_one(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="already exists"):
        workspace(small).save(tmp_path / "out")
    work = workspace(small)
    work._ropes["broken"] = (Segment(10, None, "gone.bin", 0),)
    with pytest.raises(Exception, match=r"gone\.bin"):
        work.save(tmp_path / "other")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "small"]


def test_file_edits(small: Path) -> None:
    work = workspace(small)
    size = os.path.getsize(small / "model.safetensors")
    work.truncate("model.safetensors", size - 5)
    work.append("config.json", b"tail")
    work.overwrite("config.json", 0, b"[")
    work.rename_file("model.safetensors", "other.safetensors")
    source = work.source()
    assert source.files()["other.safetensors"] == size - 5
    assert source.read("config.json").startswith(b"[") and source.read("config.json").endswith(b"}tail")
    assert "model.safetensors" not in source.files()


def test_an_unedited_gguf_is_written_back_byte_for_byte(golden: Path) -> None:
    folder = golden / "llama.cpp-q4_k_m"
    name = next(path.name for path in folder.glob("*.gguf"))
    original = (folder / name).read_bytes()
    edit = GgufEdit(workspace(folder).source(), name)
    rope = RopeSource(LocalFolder(folder), {name: edit.rope()})
    assert rope.read(name) == original


def test_the_index_follows_tensor_edits(golden: Path) -> None:
    work = workspace(golden / "own-sharded-bf16")
    work.rename("model.norm.weight", "model.final.weight")
    work.drop("model.embed_tokens.weight")
    mapping = json.loads(work.source().read("model.safetensors.index.json"))["weight_map"]
    assert "model.final.weight" in mapping and "model.norm.weight" not in mapping
    assert "model.embed_tokens.weight" not in mapping


pieces = st.lists(st.binary(max_size=8), min_size=1, max_size=5)


@given(pieces, st.integers(0, 45), st.integers(0, 45))
def test_a_rope_reads_like_the_bytes_it_stands_for(parts: list[bytes], start: int, length: int) -> None:
    class Nowhere(LocalFolder):
        def __init__(self) -> None:
            self._typed = "nowhere"

    whole = b"".join(parts)
    rope = [literal(part) for part in parts]
    source = RopeSource(Nowhere(), {"file": rope})
    assert source.read("file", start, length) == whole[start : start + length]
    assert source.read("file") == whole
    assert b"".join(source.chunks("file")) == whole
    assert (
        b"".join(segment.data or b"" for segment in cut(rope, start, start + length)) == whole[start : start + length]
    )
