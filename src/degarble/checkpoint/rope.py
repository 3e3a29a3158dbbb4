"""Files as ropes of segments: edits cost only their own bytes, whatever the size of the checkpoint.

A segment is either bytes in memory or a range of another source's file. A rewritten shard is one new header and the
old ranges of all tensors that did not change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from degarble.checkpoint.interface import Source
from degarble.errors import TargetError

CHUNK_BYTES = 8 << 20


class Segment(msgspec.Struct, frozen=True):
    """Bytes [start, start + length) of a file of the base source (or of `origin`), or literal bytes."""

    length: int
    data: bytes | None = None
    file: str = ""
    start: int = 0
    origin: Source | None = None
    """The source that `file` belongs to, where it is not the base: a reference, or a spill file."""


def literal(data: bytes) -> Segment:
    """A segment in memory."""
    return Segment(len(data), data)


class RopeSource(Source):
    """A source whose files are ropes over a base source. Nothing is written to disk."""

    def __init__(self, base: Source, files: Mapping[str, Sequence[Segment]]) -> None:
        self.base = base
        self.ropes = {name: tuple(rope) for name, rope in files.items()}
        self.kind = base.kind  # type: ignore[misc]  # the kind of what it stands for

    @property
    def path(self) -> str:
        """The path of the base."""
        return self.base.path

    def files(self) -> Mapping[str, int]:
        """Sizes of the ropes."""
        return {name: sum(segment.length for segment in rope) for name, rope in self.ropes.items()}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """See Source."""
        if name not in self.ropes:
            raise TargetError(f"{name}: not part of {self.path}")
        end = None if length is None else start + length
        parts: list[bytes] = []
        cursor = 0
        for segment in self.ropes[name]:
            low = max(start - cursor, 0)
            high = segment.length if end is None else min(end - cursor, segment.length)
            if low < high:
                parts.append(self._part(segment, low, high))
            cursor += segment.length
            if end is not None and cursor >= end:
                break
        return b"".join(parts)

    def locate(self, name: str, start: int, length: int) -> tuple[Path, int] | None:
        """The local file and offset of a range that lies in one piece on disk; None for any other."""
        cursor = 0
        for segment in self.ropes[name]:
            if cursor <= start and start + length <= cursor + segment.length:
                return self._on_disk(segment, start - cursor, length)
            cursor += segment.length
        return None

    def _on_disk(self, segment: Segment, low: int, length: int) -> tuple[Path, int] | None:
        origin, start = segment.origin or self.base, segment.start + low
        if segment.data is not None:
            return None
        if isinstance(origin, RopeSource):
            return origin.locate(segment.file, start, length)
        local_path = getattr(origin, "local_path", None)
        return None if local_path is None else (local_path(segment.file), start)

    def _part(self, segment: Segment, low: int, high: int) -> bytes:
        if segment.data is not None:
            return segment.data[low:high]
        return (segment.origin or self.base).read(segment.file, segment.start + low, high - low)

    def refused(self) -> Mapping[str, str]:
        """See Source."""
        return self.base.refused()

    def digests(self) -> Mapping[str, str]:
        """Of files that are as they were."""
        known = self.base.digests()
        return {name: digest for name, digest in known.items() if name in self.ropes and self.is_unchanged(name)}

    def chunks(self, name: str) -> Iterator[bytes]:
        """A file's bytes in pieces, for writing it out with bounded memory."""
        for segment in self.ropes[name]:
            for low in range(0, segment.length, CHUNK_BYTES):
                yield self._part(segment, low, min(low + CHUNK_BYTES, segment.length))

    def is_unchanged(self, name: str) -> bool:
        """Whether the rope is exactly one whole file of the base under the same name."""
        rope = self.ropes[name]
        return len(rope) == 1 and rope[0] == Segment(self.base.files().get(name, -1), None, name, 0)


def cut(rope: Sequence[Segment], start: int, end: int) -> list[Segment]:
    """The segments of bytes [start, end)."""
    found: list[Segment] = []
    cursor = 0
    for segment in rope:
        low, high = max(start - cursor, 0), min(end - cursor, segment.length)
        if low < high:
            data = None if segment.data is None else segment.data[low:high]
            found.append(Segment(high - low, data, segment.file, segment.start + low, segment.origin))
        cursor += segment.length
    return found
