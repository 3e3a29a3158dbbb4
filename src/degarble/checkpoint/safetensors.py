"""Headers of safetensors files, bounded before they are parsed.

    0        8              8 + n                         file size
    | n: u64 | JSON, n bytes | tensor data, no holes, no overlap |
               {"name": {"dtype": "BF16", "shape": [..], "data_offsets": [begin, end)}, "__metadata__": {..}}

Offsets count from byte 8 + n. The rules are those of the format's own README and of its Rust reader: header at most
100 MB, starts with '{', regions in order without hole or overlap, and they end exactly where the file ends.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from degarble.checkpoint.interface import Source, TensorInfo, element_bits, num_elements
from degarble.errors import MalformedFile

MAX_HEADER_BYTES = 100_000_000
"""The reference reader's own limit (`MAX_HEADER_SIZE`, safetensors `tensor.rs`)."""

METADATA_KEY = "__metadata__"


class _Entry(msgspec.Struct, frozen=True, gc=False):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


_HEADER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENTRIES = msgspec.json.Decoder(dict[str, _Entry])
_ENTRY = msgspec.json.Decoder(_Entry)
_METADATA = msgspec.json.Decoder(dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
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
    entries, metadata, problems = _entries(file, raw)
    tensors, more = _tensors(file, entries, 8 + length)
    problems += more
    problems += list(_region_problems(file, tensors, 8 + length, size))
    return Header(
        file=file, tensors=tensors, metadata=metadata, data_start=8 + length, size=size, problems=tuple(problems)
    )


def _header_length(source: Source, file: str, size: int) -> int:
    first = source.read(file, 0, 8)
    if len(first) < 8:
        raise MalformedFile(file, "byte 0", "8 bytes of header length", f"a file of {size} bytes")
    (length,) = struct.unpack("<Q", first)
    hint = _not_safetensors(first + source.read(file, 8, 248))
    if hint:
        raise MalformedFile(file, "byte 0", "a safetensors header", hint)
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise MalformedFile(file, "byte 0", f"a header length from 2 to {MAX_HEADER_BYTES}", str(length))
    if 8 + length > size:
        raise MalformedFile(
            file,
            "byte 0",
            f"a header of {length} bytes",
            f"a file of {size} bytes",
            missing_bytes=8 + length - size,
        )
    return int(length)


def _not_safetensors(start: bytes) -> str | None:
    """Name the usual impostors, so that the message says what to do."""
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


def _entries(file: str, raw: bytes) -> tuple[dict[str, _Entry], dict[str, str], list[MalformedFile]]:
    """Decode the JSON; on the fast path everything is typed by msgspec in one go."""
    try:
        parts = _HEADER.decode(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedFile(file, "header", "a JSON object in UTF-8", str(error)) from None
    problems = [
        MalformedFile(file, name, "each tensor once", "the name twice in the header") for name in _duplicates(raw, parts)
    ]
    metadata: dict[str, str] = {}
    text = parts.pop(METADATA_KEY, None)
    if text is not None:
        try:
            metadata = _METADATA.decode(text)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            problems.append(MalformedFile(file, METADATA_KEY, "an object of strings", str(error)))
    try:
        if text is None:
            return _ENTRIES.decode(raw), metadata, problems
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        pass  # one bad entry: decode them one by one below, so that it can be named
    entries: dict[str, _Entry] = {}
    for name, part in parts.items():
        try:
            entries[name] = _ENTRY.decode(part)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            problems.append(MalformedFile(file, name, "dtype, shape and data_offsets", str(error)))
    return entries, metadata, problems


def _duplicates(raw: bytes, parts: dict[str, msgspec.Raw]) -> list[str]:
    """Names that occur twice: JSON parsers keep the last one silently. Only looked for if the count is off."""
    if raw.count(b'"data_offsets"') <= len(parts):
        return []
    seen: set[str] = set()
    twice: list[str] = []
    for match in re.finditer(rb'("(?:[^"\\]|\\.)*")\s*:\s*\{\s*"(?:dtype|shape|data_offsets)"', raw):
        name = msgspec.json.decode(match.group(1), type=str)
        if name in seen:
            twice.append(name)
        seen.add(name)
    return twice


def _tensors(
    file: str, entries: dict[str, _Entry], data_start: int
) -> tuple[dict[str, TensorInfo], list[MalformedFile]]:
    tensors: dict[str, TensorInfo] = {}
    problems: list[MalformedFile] = []
    for name, entry in entries.items():
        begin, end = entry.data_offsets
        problem = _entry_problem(file, name, entry)
        if problem is not None:
            problems.append(problem)
        if 0 <= begin <= end:
            tensors[name] = TensorInfo(name, entry.dtype, entry.shape, file, data_start + begin, end - begin)
    return tensors, problems


def _entry_problem(file: str, name: str, entry: _Entry) -> MalformedFile | None:
    begin, end = entry.data_offsets
    if not 0 <= begin <= end:
        return MalformedFile(file, name, "0 <= begin <= end in data_offsets", f"[{begin}, {end}]")
    if entry.shape and min(entry.shape) < 0:
        return MalformedFile(file, name, "a shape without negative axes", str(list(entry.shape)))
    bits = element_bits(entry.dtype)
    if bits is None:
        return MalformedFile(file, name, "a known dtype", repr(entry.dtype))
    if num_elements(entry.shape) * bits != (end - begin) * 8:
        return MalformedFile(
            file,
            name,
            f"{num_elements(entry.shape) * bits / 8:g} bytes for {entry.dtype} {list(entry.shape)}",
            f"{end - begin} bytes in data_offsets",
        )
    return None


def _region_problems(
    file: str, tensors: dict[str, TensorInfo], data_start: int, size: int
) -> Iterator[MalformedFile]:
    """Holes and overlaps between neighbours, and bytes after the last tensor."""
    cursor, before = data_start, "the header"
    for info in sorted(tensors.values(), key=lambda t: (t.start, t.end)):
        if info.start != cursor:
            what = "overlaps" if info.start < cursor else "leaves a hole after"
            yield MalformedFile(
                file, info.name, f"data to start at {cursor - data_start}", f"{info.start - data_start}: {what} {before}"
            )
        if info.end >= cursor:
            cursor, before = info.end, info.name
    if size > cursor:
        yield MalformedFile(
            file, f"byte {cursor}", "the end of the file", f"{size - cursor} further bytes that no tensor claims"
        )
