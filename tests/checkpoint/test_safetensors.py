"""The header reader against the format's own library, and at the edges where both must refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from safetensors import deserialize, safe_open

from degarble.checkpoint.safetensors import Header, read_header
from degarble.errors import MalformedFile
from degarble.target import open_target
from tests.checkpoint.raw_files import entry, in_memory, safetensors

ONE = {"x": entry("F32", [2], 0, 8)}


def read(data: bytes) -> Header:
    """The header of one file in memory."""
    return read_header(in_memory({"m.safetensors": data}), "m.safetensors")


def library_accepts(data: bytes) -> bool:
    """Whether the format's own reader takes the file."""
    try:
        deserialize(data)  # type: ignore[no-untyped-call]
    except Exception:
        return False
    return True


def test_golden_headers_agree_with_the_library(golden: Path) -> None:
    """Names, dtypes, shapes and metadata of every healthy file."""
    paths = sorted(golden.glob("*/*.safetensors"))
    assert len(paths) > 25
    for path in paths:
        header = read_header(open_target(path), path.name)
        assert header.problems == () and header.promised_size == header.size
        with safe_open(path, framework="np") as theirs:
            assert set(header.tensors) == set(theirs.keys())
            assert header.metadata == (theirs.metadata() or {})
            for name, info in header.tensors.items():
                part = theirs.get_slice(name)
                assert (list(info.shape), info.dtype) == (part.get_shape(), part.get_dtype())


@pytest.mark.parametrize("length", [640, 66_176, 19_280, 84_816])
def test_a_header_length_may_look_like_a_pickle(length: int) -> None:
    """640 is 0x80 0x02 and 19,280 is "PK": the first bytes are a number, not a magic."""
    data = safetensors(ONE, bytes(8), pad=length - len(json.dumps(ONE)))
    assert data[:2] in (b"\x80\x02", b"PK")
    assert library_accepts(data)
    assert read(data).problems == ()


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs"),
        (b"<!DOCTYPE html><html><body>log in</body></html>", "HTML"),
        (b"GGUF\x03\0\0\0" + bytes(64), "GGUF"),
        (b"PK\x03\x04" + bytes(64), "pickle"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P" + bytes(64), "pickle"),
        (bytes(300), "zeros"),
    ],
)
def test_impostors_are_named(start: bytes, says: str) -> None:
    """The message says what the file really is."""
    with pytest.raises(MalformedFile, match=says) as caught:
        read(start)
    assert caught.value.missing_bytes == 0


HEADERS: list[tuple[str, Any, int, str]] = [
    ("overlap", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, 12, "overlaps"),
    ("hole", {"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 12, 20)}, 20, "hole"),
    ("hole at the start", {"a": entry("F32", [2], 8, 16)}, 16, "hole after the header"),
    ("trailing", ONE, 9, "no tensor claims"),
    ("size", {"x": entry("F32", [3], 0, 8)}, 8, "12 bytes for F32"),
    ("dtype", {"x": entry("F33", [2], 0, 8)}, 8, "a known dtype"),
    ("backwards", {"x": entry("F32", [2], 8, 0)}, 8, "begin <= end"),
    ("negative offset", {"x": entry("F32", [2], -8, 0)}, 8, "begin <= end"),
    ("negative axis", {"x": entry("F32", [-2, -1], 0, 8)}, 8, "negative"),
    ("huge axis", {"x": entry("F32", [2**64], 0, 8)}, 8, "2^64"),
    ("huge product", {"x": entry("F32", [2**40, 2**40], 0, 8)}, 8, "2^64"),
    ("huge product of nothing", {"x": entry("F32", [2**40, 2**40, 0], 0, 0)}, 0, "2^64"),
    ("huge offset", {"x": entry("F32", [2], 0, 2**65)}, 8, "begin <= end"),
    ("enormous number", {"x": entry("F32", [10**4000], 0, 8)}, 8, "m.safetensors"),
    ("no shape", {"x": {"dtype": "F32", "data_offsets": [0, 8]}}, 8, "shape"),
    ("null", {"x": None}, 0, "expected dtype"),
    ("null dtype", {"x": {"dtype": None, "shape": [2], "data_offsets": [0, 8]}}, 8, "dtype"),
    ("fraction", {"x": {"dtype": "F32", "shape": [2.5], "data_offsets": [0, 8]}}, 8, "int"),
    ("number as text", {"x": {"dtype": "F32", "shape": ["2"], "data_offsets": [0, 8]}}, 8, "int"),
    ("one offset", {"x": {"dtype": "F32", "shape": [2], "data_offsets": [8]}}, 8, "data_offsets"),
    ("metadata of numbers", {"__metadata__": {"format": 1}, **ONE}, 8, "__metadata__"),
    ("metadata as text", {"__metadata__": "pt", **ONE}, 8, "__metadata__"),
    (
        "same name twice",
        b'{"x":' + json.dumps(ONE["x"]).encode() + b',"x":' + json.dumps(entry("F32", [2], 8, 16)).encode() + b"}",
        16,
        "twice",
    ),
    (
        "same name twice beside metadata",
        b'{"__metadata__":{},"x":'
        + json.dumps(ONE["x"]).encode()
        + b',"x":'
        + json.dumps(entry("F32", [0], 0, 0)).encode()
        + b"}",
        0,
        "twice",
    ),
    ("many axes", {"x": entry("F32", [1] * 100_000, 0, 8)}, 8, "bytes for F32"),
    ("many huge axes", {"x": entry("F32", [2**63] * 50_000, 0, 8)}, 8, "2^64"),
]


@pytest.mark.parametrize(("header", "size", "says"), [case[1:] for case in HEADERS], ids=[case[0] for case in HEADERS])
def test_broken_headers(header: Any, size: int, says: str) -> None:
    """The tensor and the contradiction are named, in a message that a terminal can show."""
    try:
        problems = list(read(safetensors(header, bytes(size))).problems)
    except MalformedFile as error:
        problems = [error]
    assert any(says in str(problem) for problem in problems), [str(p) for p in problems]
    assert all(len(str(problem)) < 1000 and problem.file == "m.safetensors" for problem in problems)


@pytest.mark.parametrize(
    "raw",
    [b"[]", b"{", b"{}}", b'{"x":}', b"{'x':1}", b'{"\xff":1}', b'{"a":"\xff"}', b"{" * 100_000, b'{"a":' * 50_000],
)
def test_headers_that_are_no_json(raw: bytes) -> None:
    """Refused as a whole or entry by entry, never an exception of another kind."""
    try:
        assert read(safetensors(raw)).problems
    except MalformedFile:
        pass


def test_lengths_out_of_range() -> None:
    """Zero, one, above the limit, above the file."""
    for length in (0, 1, 100_000_001, 2**63, 2**64 - 1):
        with pytest.raises(MalformedFile, match="header length") as caught:
            read(length.to_bytes(8, "little") + b"{}" + bytes(20))
        assert caught.value.missing_bytes == 0
    with pytest.raises(MalformedFile) as caught:
        read((100).to_bytes(8, "little") + b'{"x"')
    assert caught.value.missing_bytes == 96
    with pytest.raises(MalformedFile) as caught:
        read((10_000).to_bytes(8, "little") + b"garbage")
    assert caught.value.missing_bytes == 0, "a length before something that is no JSON is no truncation"
    for size in range(8):
        with pytest.raises(MalformedFile) as caught:
            read(bytes(size))
        assert caught.value.missing_bytes == 8 - size


def test_legal_oddities_are_silent() -> None:
    """Empty files, empty tensors, scalars, spaces, any order of keys."""
    cases: list[tuple[Any, int]] = [
        ({}, 0),
        ({"__metadata__": {"format": "pt", "dtype": "x"}}, 0),
        ({"a": entry("F32", [0, 4], 0, 0), "b": entry("F32", [], 0, 4)}, 4),
        ({"b": entry("U8", [4], 4, 8), "a": entry("F32", [], 0, 4)}, 8),
        ({"a": {"data_offsets": [0, 1], "shape": [1], "dtype": "I8", "note": [1, {}]}}, 1),
        ({"": entry("BOOL", [1], 0, 1)}, 1),
        ({"é\u2028": entry("F64", [1], 0, 8)}, 8),
    ]
    for header, size in cases:
        data = safetensors(header, bytes(size), pad=3)
        assert library_accepts(data), header
        assert read(data).problems == (), header


def test_a_large_header_is_read_in_a_fraction_of_a_second() -> None:
    """40,000 tensors with metadata take the typed path; entry by entry they would take several times as long."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for number in range(40_000):
        header[f"model.layers.{number // 800}.mlp.experts.{number % 800}.w"] = entry(
            "F32", [2], 8 * number, 8 * number + 8
        )
    data = safetensors(header, bytes(320_000))
    start = time.perf_counter()
    assert len(read(data).tensors) == 40_000
    assert time.perf_counter() - start < 1.5
