"""GGUF headers, every count, length and offset checked before it is used.

    | "GGUF" | version u32 | tensors u64 | pairs u64 | pairs: key, type, value … | infos: name, dims, type, offset … |
    | padding to general.alignment | data: each tensor at data start + offset, offsets multiples of the alignment |

Source: `docs/gguf.md` of ggml. Versions 2 and 3, little endian; big endian and version 1 are named and refused.
Tensor shapes are given back reversed, `[out, in]`, so that the last axis is the contiguous one.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from degarble.checkpoint.interface import Source, TensorInfo, num_elements
from degarble.errors import MalformedFile
from degarble.formats.gguf_types import GGML_TYPES

MAGIC = b"GGUF"
MAX_HEADER_BYTES = 128 * 1024 * 1024
"""A header is vocabulary and tensor names; the largest real ones are near 30 MB."""
MAX_TEXT_BYTES = 64 * 1024 * 1024
MAX_TENSORS = 200_000
MAX_PAIRS = 100_000
MAX_PROBLEMS = 1000
"""Faults of one header that are kept: enough to tell what happened to it."""
MAX_ELEMENTS = 4_000_000
"""Strings or arrays in an array; the largest vocabularies are below 300,000."""
MAX_DIMS = 4
"""GGML_MAX_DIMS."""
MAX_NAME_BYTES = 65_535
MAX_ARRAY_DEPTH = 4

SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
"""GGUF value type -> numpy dtype; 8 is string, 9 array."""
_UINT32, _STRING, _ARRAY = 4, 8, 9
_I64 = 1 << 63


class GgufFile(msgspec.Struct, frozen=True, kw_only=True):
    """One GGUF file as its header tells it."""

    file: str
    version: int
    metadata: Mapping[str, Any]
    """Key -> value; arrays of numbers as numpy arrays, arrays of strings as lists of str (invalid UTF-8 kept as
    surrogates)."""
    tensors: Mapping[str, TensorInfo]
    value_types: Mapping[str, tuple[int, int | None]]
    """Key -> (GGUF value type, element type of an array), so that a file can be written again."""
    type_ids: Mapping[str, int]
    """Tensor -> ggml type id."""
    alignment: int
    data_start: int
    size: int
    problems: tuple[MalformedFile, ...]
    """Faults that leave the header readable: unknown types, rows that are no whole blocks, doubled names."""

    @property
    def architecture(self) -> str | None:
        """`general.architecture`, which prefixes the model's keys; None if it is absent or no string."""
        return self.text("general.architecture")

    def text(self, key: str) -> str | None:
        """A metadata value that is a string; None for anything else, arrays (which do not compare) among them."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


@dataclass(slots=True)
class _Cursor:
    """Reads forward through a bounded buffer that grows on demand."""

    source: Source
    file: str
    size: int
    at: int = 0
    buffer: bytes = b""
    chunk: int = 1 << 20

    def take(self, length: int, what: str) -> bytes:
        if length < 0 or self.at + length > min(self.size, MAX_HEADER_BYTES):
            left = f"{max(0, self.size - self.at)} left in the file"
            short = self.at + length - self.size if length <= MAX_HEADER_BYTES else 0
            raise MalformedFile(
                self.file, f"byte {self.at}", f"{length} bytes of {what}", left, missing_bytes=max(0, short)
            )
        while len(self.buffer) < self.at + length:
            want = max(self.at + length - len(self.buffer), self.chunk)
            more = self.source.read(self.file, len(self.buffer), want)
            if not more:
                raise MalformedFile(self.file, f"byte {self.at}", what, "the end of the file")
            self.buffer += more
            self.chunk *= 2
        part = self.buffer[self.at : self.at + length]
        self.at += length
        return part

    def peek(self, length: int) -> bytes:
        part = self.take(length, "a value")
        self.at -= length
        return part

    def number(self, code: str, what: str) -> int:
        return int(struct.unpack(code, self.take(struct.calcsize(code), what))[0])

    def text(self, what: str, limit: int) -> str:
        length = self.number("<Q", f"length of {what}")
        if length > limit:
            raise MalformedFile(self.file, f"byte {self.at - 8}", f"{what} of at most {limit} bytes", f"{length}")
        return self.take(length, what).decode("utf-8", "surrogateescape")


def read_gguf(source: Source, file: str) -> GgufFile:
    """Read and judge the header of one file. Raises MalformedFile where it cannot be followed any further."""
    cursor = _Cursor(source, file, source.files()[file])
    version, num_tensors, num_pairs = _preamble(cursor)
    problems: list[MalformedFile] = []
    metadata, value_types = _metadata(cursor, num_pairs, problems)
    raw = [_info(cursor) for _ in range(num_tensors)]
    alignment = _alignment(file, metadata, value_types, problems)
    data_start = -(-cursor.at // alignment) * alignment
    tensors = _tensors(file, raw, data_start, problems)
    return GgufFile(
        file=file,
        version=version,
        metadata=metadata,
        tensors=tensors,
        value_types=value_types,
        type_ids={info.name: info.type_id for info in raw},
        alignment=alignment,
        data_start=data_start,
        size=cursor.size,
        problems=tuple(problems[:MAX_PROBLEMS]),
    )


def _preamble(cursor: _Cursor) -> tuple[int, int, int]:
    magic = cursor.take(4, "magic")
    if magic != MAGIC:
        raise MalformedFile(cursor.file, "byte 0", "the magic 'GGUF'", _impostor(magic))
    version = cursor.number("<I", "version")
    if version not in (2, 3):
        found = "a big-endian file" if version in (0x02000000, 0x03000000) else f"version {version}"
        raise MalformedFile(cursor.file, "byte 4", "GGUF version 2 or 3, little endian", found)
    counts: list[int] = []
    for what, limit, least in (("tensors", MAX_TENSORS, 32), ("metadata pairs", MAX_PAIRS, 13)):
        count = cursor.number("<Q", f"number of {what}")
        if count > limit or count * least > cursor.size:
            raise MalformedFile(
                cursor.file,
                f"byte {cursor.at - 8}",
                f"a number of {what} that fits the file",
                f"{count} in {cursor.size} bytes",
                missing_bytes=count * least - cursor.size if count <= limit else 0,
            )
        counts.append(count)
    return version, counts[0], counts[1]


def _impostor(magic: bytes) -> str:
    if magic == b"vers":
        return "a git-lfs pointer: the weights were never fetched (git lfs pull)"
    if magic in (b"<!do", b"<!DO", b"<htm"):
        return "an HTML page: the download answered with an error or log-in page"
    return "zeros" if magic == b"\0\0\0\0" else repr(magic)


def _metadata(
    cursor: _Cursor, count: int, problems: list[MalformedFile]
) -> tuple[dict[str, Any], dict[str, tuple[int, int | None]]]:
    pairs: dict[str, Any] = {}
    types: dict[str, tuple[int, int | None]] = {}
    for _ in range(count):
        key = cursor.text("a metadata key", MAX_NAME_BYTES)
        kind = cursor.number("<I", f"type of {key}")
        inner = int.from_bytes(cursor.peek(4), "little") if kind == _ARRAY else None
        if key in pairs:
            problems.append(MalformedFile(cursor.file, key, "each key once", "the key twice"))
        if not _is_text(key):
            problems.append(MalformedFile(cursor.file, repr(key), "a key in UTF-8", "other bytes"))
        pairs[key] = _value(cursor, kind, key, 0)
        types[key] = (kind, inner)
    return pairs, types


def _value(cursor: _Cursor, kind: int, key: str, depth: int) -> Any:
    if kind in SCALARS:
        dtype = np.dtype(SCALARS[kind])
        return np.frombuffer(cursor.take(dtype.itemsize, key), dtype)[0].item()
    if kind == _STRING:
        return cursor.text(key, MAX_TEXT_BYTES)
    if kind != _ARRAY or depth >= MAX_ARRAY_DEPTH:
        raise MalformedFile(cursor.file, key, "a value type from 0 to 12", f"{kind} at byte {cursor.at - 4}")
    inner = cursor.number("<I", f"element type of {key}")
    count = cursor.number("<Q", f"length of {key}")
    if inner in SCALARS:
        dtype = np.dtype(SCALARS[inner])
        return np.frombuffer(cursor.take(count * dtype.itemsize, key), dtype)
    beyond = cursor.at + count * 8 - cursor.size
    if beyond > 0 or count > MAX_ELEMENTS:
        missing = max(0, beyond) if count <= MAX_ELEMENTS else 0
        raise MalformedFile(cursor.file, key, "an array that fits the file", f"{count} elements", missing_bytes=missing)
    if inner == _STRING:
        return _strings(cursor, count, key)
    return [_value(cursor, inner, key, depth + 1) for _ in range(count)]


def _is_text(name: str) -> bool:
    """Whether the bytes were UTF-8; others were kept as surrogates."""
    return name.isascii() or not any("\udc80" <= letter <= "\udcff" for letter in name)


def _strings(cursor: _Cursor, count: int, key: str) -> list[str]:
    """A vocabulary has 150,000 of these: one tight loop over one buffer."""
    texts: list[str] = []
    for _ in range(count):
        if len(cursor.buffer) < cursor.at + 8:
            cursor.peek(8)
        length = int.from_bytes(cursor.buffer[cursor.at : cursor.at + 8], "little")
        cursor.at += 8
        end = cursor.at + length
        if end <= len(cursor.buffer):
            part = cursor.buffer[cursor.at : end]
            cursor.at = end
        else:
            part = cursor.take(length, key)
        texts.append(part.decode("utf-8", "surrogateescape"))
    return texts


class _Info(msgspec.Struct, frozen=True):
    name: str
    shape: tuple[int, ...]
    type_id: int
    offset: int


def _info(cursor: _Cursor) -> _Info:
    name = cursor.text("a tensor name", MAX_NAME_BYTES)
    dims = cursor.number("<I", f"number of axes of {name}")
    if dims > MAX_DIMS:
        raise MalformedFile(cursor.file, name, f"at most {MAX_DIMS} axes", str(dims))
    axes = struct.unpack(f"<{dims}Q", cursor.take(8 * dims, f"axes of {name}"))
    type_id = cursor.number("<I", f"type of {name}")
    return _Info(name, tuple(reversed(axes)), type_id, cursor.number("<Q", f"offset of {name}"))


def _alignment(
    file: str,
    metadata: Mapping[str, Any],
    value_types: Mapping[str, tuple[int, int | None]],
    problems: list[MalformedFile],
) -> int:
    """`general.alignment`, 32 where it is not given; ggml and gguf-py read it as uint32 only."""
    key = "general.alignment"
    if key not in metadata:
        return 32
    value, kind = metadata[key], value_types[key][0]
    if kind != _UINT32 or not 1 <= value <= 1 << 20 or value & (value - 1):
        found = f"{value!r} of value type {kind}" if kind in SCALARS else f"value type {kind}"
        problems.append(MalformedFile(file, key, "a power of two, stored as uint32", found))
        return 32
    return int(value)


def _tensors(file: str, raw: list[_Info], data_start: int, problems: list[MalformedFile]) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    for info in raw:
        kind = GGML_TYPES.get(info.type_id)
        label, nbytes = f"GGUF:type {info.type_id}", 0
        if kind is None or kind.type_size == 0:
            problems.append(MalformedFile(file, info.name, "a ggml type that is known", f"type {info.type_id}"))
        else:
            label = f"GGUF:{kind.name}"
            columns = info.shape[-1] if info.shape else 1
            if columns % kind.block_size:
                problems.append(
                    MalformedFile(
                        file, info.name, f"rows of a multiple of {kind.block_size} values for {kind.name}", f"{columns}"
                    )
                )
            elements = num_elements(info.shape)
            if max(elements, *info.shape, 0) >= _I64:
                problems.append(MalformedFile(file, info.name, "fewer than 2^63 elements", f"{info.shape}"))
            nbytes = -(-elements // kind.block_size) * kind.type_size
        if not _is_text(info.name):
            problems.append(MalformedFile(file, repr(info.name), "a tensor name in UTF-8", "other bytes"))
        if info.name in tensors:
            problems.append(MalformedFile(file, info.name, "each tensor once", "the name twice"))
        tensors[info.name] = TensorInfo(info.name, label, info.shape, file, data_start + info.offset, nbytes)
    return tensors
