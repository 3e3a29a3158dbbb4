"""Headers of safetensors files, bounded before they are parsed.

    0        8              8 + n                         file size
    | n: u64 | JSON, n bytes | tensor data, no holes, no overlap |
               {"name": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end)}, "__metadata__": {..}}

Offsets count from byte 8 + n. The rules are those of the format's own README and of its Rust reader: header at most
100 MB, starts with '{', regions in order without hole or overlap, and they end exactly where the file ends.
"""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, cast

import msgspec

from degarble.checkpoint.interface import Source, TensorInfo, element_bits
from degarble.errors import MalformedFile

MAX_HEADER_BYTES = 100_000_000
"""The reference reader's own limit (`MAX_HEADER_SIZE`, safetensors `tensor.rs`)."""

MAX_TENSORS = 500_000
"""In one file. The largest checkpoints have 92,000 in all their files together."""

MAX_PROBLEMS = 1000
"""Faults of one header that are kept: enough to tell what happened to it."""

METADATA_KEY = "__metadata__"


class _Entry(msgspec.Struct, frozen=True, gc=False):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _LooseEntry(msgspec.Struct, frozen=True, gc=False):
    """A tensor's entry, or the metadata object, whose keys are passed over: one typed decode reads a whole header."""

    dtype: str | None = None
    shape: tuple[int, ...] | None = None
    data_offsets: tuple[int, int] | None = None


class _MetadataOnly(msgspec.Struct, frozen=True):
    metadata: dict[str, str] = msgspec.field(default_factory=dict, name=METADATA_KEY)


_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(dict[str, _LooseEntry])
_ENTRY = msgspec.json.Decoder(_Entry)
_METADATA_ONLY = msgspec.json.Decoder(_MetadataOnly)
_METADATA = msgspec.json.Decoder(dict[str, str])
_METADATA_FIRST = re.compile(r'\{\s*"__metadata__"\s*:\s*\{')
_STANDARD = json.JSONDecoder()
_BY_REGION = attrgetter("start", "nbytes")
_U64 = 1 << 64
_DECODING = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What one file promises, and every way in which it breaks the promise."""

    file: str
    tensors: dict[str, TensorInfo]
    metadata: dict[str, str]
    data_start: int
    size: int
    """Bytes the file really has."""
    problems: tuple[MalformedFile, ...]
    """Faults that leave the header readable: overlaps, holes, trailing bytes, unknown dtypes."""

    @property
    def promised_size(self) -> int:
        """Bytes the file must have for its last tensor to be complete."""
        return max((info.end for info in self.tensors.values()), default=self.data_start)


def header_bytes(tensors: Iterable[tuple[str, str, Sequence[int], int]], metadata: Mapping[str, str]) -> bytes:
    """Length and header of (name, dtype, shape, bytes) in the order of their data, padded to 8 bytes with spaces."""
    entries: dict[str, Any] = {METADATA_KEY: metadata} if metadata else {}
    cursor = 0
    for name, dtype, shape, size in tensors:
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [cursor, cursor + size]}
        cursor += size
    text = msgspec.json.encode(entries)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(source: Source, file: str) -> Header:
    """Read and judge the header of one file.

    Raises MalformedFile where nothing of the header can be trusted: too short, length out of range, not JSON.
    """
    size = source.files()[file]
    length = _header_length(source, file, size)
    raw = source.read(file, 8, length)
    if len(raw) != length:
        raise MalformedFile(file, "header", f"{length} bytes", f"{len(raw)} bytes", missing_bytes=length - len(raw))
    if raw[:1] != b"{":
        raise MalformedFile(file, "byte 8", "'{', the start of a JSON object", repr(raw[:16]))
    num_entries = raw.count(b'"data_offsets"')
    if num_entries > MAX_TENSORS:
        raise MalformedFile(file, "header", f"at most {MAX_TENSORS} tensors", str(num_entries))
    entries, metadata, problems = _entries(file, raw)
    tensors, more = _tensors(file, entries, 8 + length)
    problems += more
    problems += list(_region_problems(file, tensors, 8 + length, size))
    return Header(
        file=file,
        tensors=tensors,
        metadata=metadata,
        data_start=8 + length,
        size=size,
        problems=tuple(problems[:MAX_PROBLEMS]),
    )


def _header_length(source: Source, file: str, size: int) -> int:
    start = source.read(file, 0, 256)
    if len(start) < 8:
        raise MalformedFile(
            file, "byte 0", "8 bytes of header length", f"a file of {size} bytes", missing_bytes=8 - len(start)
        )
    (length,) = struct.unpack("<Q", start[:8])
    hint = _not_safetensors(start)
    if hint:
        raise MalformedFile(file, "byte 0", "a safetensors header", hint)
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise MalformedFile(file, "byte 0", f"a header length from 2 to {MAX_HEADER_BYTES}", str(length))
    if 8 + length > size:
        short = 8 + length - size if start[8:9] in (b"{", b"") else 0
        raise MalformedFile(
            file, "byte 0", f"a header of {length} bytes", f"a file of {size} bytes", missing_bytes=short
        )
    return int(length)


def _not_safetensors(start: bytes) -> str | None:
    """Name the usual impostors, so that the message says what to do. A header length may begin with any bytes."""
    if start[8:9] == b"{":
        return None
    if start.startswith(b"version https://git-lfs"):
        return "a git-lfs pointer: the weights were never fetched (git lfs pull)"
    if start.lstrip()[:9].lower() in (b"<!doctype", b"<html"):
        return "an HTML page: the download answered with an error or log-in page"
    if start[:4] == b"GGUF":
        return "a GGUF file under a safetensors name"
    if start[:2] == b"PK" or start[:2] == b"\x80\x02":
        return "a pickle (PyTorch) file under a safetensors name"
    if start.count(0) == len(start):
        return "zeros: the first bytes of the file were lost in a copy or upload"
    return None


def _entries(file: str, raw: bytes) -> tuple[Mapping[str, _Entry], dict[str, str], list[MalformedFile]]:
    """Decode the JSON in one go; where that fails, entry by entry, so that the bad one can be named."""
    try:
        text = raw.decode()
        entries = _ENTRIES.decode(raw)
        metadata = _metadata(text)
    except _DECODING:
        return _entries_one_by_one(file, raw)
    entries.pop(METADATA_KEY, None)
    if any(entry.data_offsets is None or entry.shape is None or entry.dtype is None for entry in entries.values()):
        return _entries_one_by_one(file, raw)
    whole = cast(Mapping[str, _Entry], entries)
    return whole, metadata, _duplicates(file, raw, len(entries))


def _metadata(text: str) -> dict[str, str]:
    """The strings under `__metadata__`. Where writers put them, at the start, the rest of the header is not read again."""
    if METADATA_KEY not in text:
        return {}
    first = _METADATA_FIRST.match(text)
    if first is None:
        return _METADATA_ONLY.decode(text).metadata
    try:
        _, end = _STANDARD.raw_decode(text, first.end() - 1)
    except ValueError as error:
        raise msgspec.DecodeError(str(error)) from None
    return _METADATA.decode(text[first.end() - 1 : end])


def _entries_one_by_one(file: str, raw: bytes) -> tuple[dict[str, _Entry], dict[str, str], list[MalformedFile]]:
    try:
        raw.decode()
        parts = _HEADER.decode(raw)
    except _DECODING as error:
        raise MalformedFile(file, "header", "a JSON object in UTF-8", str(error)) from None
    problems: list[MalformedFile] = []
    metadata: dict[str, str] = {}
    text = parts.pop(METADATA_KEY, None)
    if text is not None:
        try:
            metadata = _METADATA.decode(text)
        except _DECODING as error:
            problems.append(MalformedFile(file, METADATA_KEY, "an object of strings", str(error)))
    entries: dict[str, _Entry] = {}
    for name, part in parts.items():
        try:
            entries[name] = _ENTRY.decode(part)
        except _DECODING as error:
            problems.append(MalformedFile(file, name, "dtype, shape and data_offsets", str(error)))
    return entries, metadata, _duplicates(file, raw, len(parts)) + problems


def _duplicates(file: str, raw: bytes, num_entries: int) -> list[MalformedFile]:
    """Names that occur twice: JSON parsers keep the last one silently. Only looked for if the count is off."""
    if raw.count(b'"data_offsets"') <= num_entries:
        return []
    seen: set[str] = set()
    twice: list[str] = []
    for match in re.finditer(rb'("(?:[^"\\]|\\.)*")\s*:\s*\{\s*"(?:dtype|shape|data_offsets)"', raw):
        name = msgspec.json.decode(match.group(1), type=str)
        if name in seen:
            twice.append(name)
        seen.add(name)
    return [MalformedFile(file, name, "each tensor once", "the name twice in the header") for name in twice]


def _tensors(
    file: str, entries: Mapping[str, _Entry], data_start: int
) -> tuple[dict[str, TensorInfo], list[MalformedFile]]:
    """Entries as tensors. One whose shape or offsets are impossible is named and left out; wrong sizes stay in."""
    tensors: dict[str, TensorInfo] = {}
    problems: list[MalformedFile] = []
    bits_of: dict[tuple[str, tuple[int, ...]], int | MalformedFile] = {}
    sound: dict[tuple[str, tuple[int, ...], int], tuple[str, tuple[int, ...], int]] = {}
    for name, entry in entries.items():
        begin, end = entry.data_offsets
        dtype, shape = entry.dtype, entry.shape
        seen = sound.get((dtype, shape, end - begin))
        if seen is not None and 0 <= begin <= end < _U64:  # peers share one shape and dtype, which compare faster then
            tensors[name] = TensorInfo(name, seen[0], seen[1], file, data_start + begin, seen[2])
            continue
        if not 0 <= begin <= end < _U64:
            found = _short(f"[{begin:#x}, {end:#x}]" if max(begin, end) >= _U64 else f"[{begin}, {end}]")
            problems.append(MalformedFile(file, name, "0 <= begin <= end in data_offsets", found))
            continue
        bits = bits_of.get((dtype, shape))
        if bits is None:
            bits = bits_of[dtype, shape] = _num_bits(file, name, dtype, shape)
        if isinstance(bits, MalformedFile):
            problems.append(MalformedFile(file, name, bits.expected, bits.found))
            if element_bits(dtype) is not None:
                continue
        elif bits != (end - begin) * 8:
            expected = f"{bits / 8:g} bytes for {dtype} {_short(str(shape))}"
            problems.append(MalformedFile(file, name, expected, f"{end - begin} bytes in data_offsets"))
        else:
            dtype = sys.intern(dtype)
            sound[dtype, shape, end - begin] = (dtype, shape, end - begin)
        tensors[name] = TensorInfo(name, dtype, shape, file, data_start + begin, end - begin)
    return tensors, problems


def _num_bits(file: str, name: str, dtype: str, shape: tuple[int, ...]) -> int | MalformedFile:
    """Bits that a tensor takes. Stops multiplying at 2^64, as the reference reader does, whatever the shape says."""
    total = 1
    for axis in shape:
        total *= axis
        if not 0 <= axis < _U64 or total >= _U64:
            return MalformedFile(file, name, "a shape of fewer than 2^64 elements, no axis negative", _axes(shape))
    bits = element_bits(dtype)
    return MalformedFile(file, name, "a known dtype", _short(repr(dtype))) if bits is None else total * bits


def _axes(shape: tuple[int, ...]) -> str:
    return _short(", ".join(str(axis) if abs(axis) < _U64 else "more than 2^64" for axis in shape[:16]))


def _short(text: str) -> str:
    return text if len(text) <= 200 else text[:200] + "…"


def _region_problems(
    file: str, tensors: Mapping[str, TensorInfo], data_start: int, size: int
) -> Iterator[MalformedFile]:
    """Holes and overlaps between neighbours, and bytes after the last tensor."""
    cursor, before = data_start, "the header"
    if _is_seamless(tensors.values(), data_start, size):
        return
    for info in sorted(tensors.values(), key=_BY_REGION):
        if info.start != cursor:
            what = "overlaps" if info.start < cursor else "leaves a hole after"
            yield MalformedFile(
                file,
                info.name,
                f"data to start at {cursor - data_start}",
                f"{info.start - data_start}: {what} {before}",
            )
        end = info.start + info.nbytes
        if end >= cursor:
            cursor, before = end, info.name
    if size > cursor:
        yield MalformedFile(
            file, f"byte {cursor}", "the end of the file", f"{size - cursor} further bytes that no tensor claims"
        )


def _is_seamless(tensors: Collection[TensorInfo], data_start: int, size: int) -> bool:
    """Whether each tensor ends where the next one starts: the usual case, at a glance.

    If the sorted ends are the sorted starts, one place on, exactly one tensor covers every byte, whichever end belongs
    to which start. Empty tensors could hide inside others and are left to the long way.
    """
    starts = sorted([info.start for info in tensors])
    ends = sorted([info.start + info.nbytes for info in tensors if info.nbytes])
    return len(starts) == len(ends) > 0 and starts[0] == data_start and ends[-1] == size and starts[1:] == ends[:-1]
