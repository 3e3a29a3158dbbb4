"""The GGUF reader against gguf-py, and at the edges."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from degarble.checkpoint.gguf import GgufFile, read_gguf
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.workspace import Workspace
from degarble.errors import MalformedFile
from degarble.target import open_target
from tests.checkpoint.raw_files import in_memory

GOLDEN = ("gguf-py-bf16", "gguf-py-q8_0", "llama.cpp-q4_0", "llama.cpp-q4_k_m")


def read(data: bytes) -> GgufFile:
    """The header of one file in memory."""
    return read_gguf(in_memory({"m.gguf": data}), "m.gguf")


def text(value: bytes) -> bytes:
    """A GGUF string."""
    return struct.pack("<Q", len(value)) + value


def header(pairs: list[bytes], infos: list[bytes], version: int = 3) -> bytes:
    """A header of ready pairs and tensor infos, padded to 32."""
    raw = b"GGUF" + struct.pack("<IQQ", version, len(infos), len(pairs)) + b"".join(pairs + infos)
    return raw + bytes(-len(raw) % 32)


def info(name: bytes, axes: list[int], kind: int = 0, offset: int = 0) -> bytes:
    """A tensor info."""
    return text(name) + struct.pack(f"<I{len(axes)}QIQ", len(axes), *axes, kind, offset)


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_files_agree_with_gguf_py(golden: Path, name: str) -> None:
    """Keys, tensors, types, shapes, offsets, sizes."""
    (path,) = (golden / name).glob("*.gguf")
    mine, theirs = read_gguf(open_target(path), path.name), GGUFReader(path)
    assert mine.problems == ()
    assert set(mine.metadata) == {key for key in theirs.fields if not key.startswith("GGUF.")}
    assert mine.data_start == theirs.data_offset and mine.alignment == theirs.alignment
    assert set(mine.tensors) == {tensor.name for tensor in theirs.tensors}
    for tensor in theirs.tensors:
        found = mine.tensors[tensor.name]
        assert found.shape == tuple(int(axis) for axis in reversed(tensor.shape))
        assert (found.start, found.nbytes) == (tensor.data_offset, tensor.n_bytes)
        assert found.dtype == f"GGUF:{tensor.tensor_type.name}"
    for key, value in mine.metadata.items():
        expected = theirs.fields[key].contents()
        assert value.tolist() == expected if isinstance(value, np.ndarray) else value == expected


@pytest.mark.parametrize("name", GOLDEN)
def test_written_again_it_is_the_same(golden: Path, name: str) -> None:
    """The writer is the inverse of the reader."""
    (path,) = (golden / name).glob("*.gguf")
    workspace = Workspace(open_target(golden / name))
    workspace.shard(path.name).changed = True
    assert workspace.source().read(path.name) == path.read_bytes()


def test_writer_types() -> None:
    """Every scalar type, arrays of numbers and of strings, bytes that are no UTF-8."""
    values: dict[str, tuple[Any, tuple[int, int | None]]] = {
        "u8": (200, (0, None)),
        "i8": (-3, (1, None)),
        "u64": (2**63, (10, None)),
        "f32": (0.5, (6, None)),
        "bool": (True, (7, None)),
        "text": ("a\udcff", (8, None)),
        "numbers": (np.array([1, 2], "<i4"), (9, 5)),
        "texts": (["", "ü"], (9, 8)),
    }
    kinds = {key: kind for key, (_, kind) in values.items()}
    found = read(encode_header({key: value for key, (value, _) in values.items()}, kinds, [], 32))
    assert found.value_types == kinds and found.problems == ()
    for key, (value, _) in values.items():
        assert np.array_equal(found.metadata[key], value)


PAIR = text(b"a.b") + struct.pack("<I", 4) + struct.pack("<I", 7)

BROKEN: list[tuple[str, bytes, str]] = [
    ("magic", b"GGML" + bytes(100), "magic"),
    ("zeros", bytes(100), "zeros"),
    ("pointer", b"version https://git-lfs.github.com/spec/v1\n" + bytes(60), "git-lfs"),
    ("page", b"<!DOCTYPE html>" + bytes(60), "HTML"),
    ("version 1", header([], [], 1), "version 1"),
    ("big endian", b"GGUF" + struct.pack(">IQQ", 3, 0, 0) + bytes(64), "big-endian"),
    ("value type", header([text(b"k") + struct.pack("<I", 99) + bytes(8)], []), "value type"),
    (
        "array depth",
        header([text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 8 + bytes(64)], []),
        "value type",
    ),
    ("array length", header([text(b"k") + struct.pack("<IIQ", 9, 8, 2**60)], []), "fits the file"),
    ("number array", header([text(b"k") + struct.pack("<IIQ", 9, 4, 2**62)], []), "left in the file"),
    ("string length", header([text(b"k") + struct.pack("<IQ", 8, 2**63)], []), "at most"),
    ("key length", header([struct.pack("<Q", 2**40) + bytes(64)], []), "at most"),
    ("axes", header([], [text(b"t") + struct.pack("<I", 2**31) + bytes(64)]), "at most 4 axes"),
    ("tensor count", b"GGUF" + struct.pack("<IQQ", 3, 2**62, 0) + bytes(64), "number of tensors"),
    ("pair count", b"GGUF" + struct.pack("<IQQ", 3, 0, 2**62) + bytes(64), "number of metadata"),
]


@pytest.mark.parametrize(("data", "says"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_what_cannot_be_followed_is_refused(data: bytes, says: str) -> None:
    """Named with its place; a length that no file has is damage, not truncation."""
    with pytest.raises(MalformedFile, match=says) as caught:
        read(data)
    assert caught.value.missing_bytes == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (header([PAIR, PAIR], []), "the key twice"),
        (header([text(b"\xff") + struct.pack("<IB", 0, 1)], []), "UTF-8"),
        (header([], [info(b"\xff", [4])]) + bytes(32), "UTF-8"),
        (header([], [info(b"t", [4]), info(b"t", [4])]) + bytes(32), "the name twice"),
        (header([], [info(b"t", [4], 4)]), "ggml type"),
        (header([], [info(b"t", [4], 999)]), "ggml type"),
        (header([], [info(b"t", [33, 2], 8)]) + bytes(128), "multiple of 32"),
        (header([text(b"general.alignment") + struct.pack("<II", 4, 48)], []), "power of two"),
        (header([text(b"general.alignment") + struct.pack("<II", 4, 0)], []), "power of two"),
        (header([text(b"general.alignment") + struct.pack("<IQ", 10, 64)], []), "uint32"),
        (header([text(b"general.alignment") + struct.pack("<I", 8) + text(b"32")], []), "uint32"),
        (header([text(b"general.alignment") + struct.pack("<IIQ", 9, 4, 0)], []), "uint32"),
    ],
)
def test_what_can_be_followed_is_noted(data: bytes, says: str) -> None:
    """The header is read, and the fault is in `problems`."""
    assert any(says in str(problem) for problem in read(data).problems)


def test_every_cut_of_a_header_is_a_truncation(golden: Path) -> None:
    """Wherever the header ends, the bytes missing are counted and nothing else is raised."""
    (path,) = (golden / "gguf-py-q8_0").glob("*.gguf")
    data = path.read_bytes()
    start = read(data).data_start
    for size in [*range(200), *range(200, start - 64, 97)]:
        with pytest.raises(MalformedFile) as caught:
            read(data[:size])
        assert caught.value.missing_bytes > 0, size
