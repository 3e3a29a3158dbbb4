"""Editing one weight file tensor by tensor; the result is a rope with a new header over mostly old bytes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from degarble.checkpoint.gguf import read_gguf
from degarble.checkpoint.gguf_writer import encode_header
from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.rope import RopeSource, Segment, cut, literal
from degarble.checkpoint.safetensors import header_bytes, read_header
from degarble.formats.gguf_types import GGML_TYPES


@dataclass(slots=True)
class Slot:
    """One tensor of the edited file."""

    dtype: str
    shape: tuple[int, ...]
    segments: Sequence[Segment]

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return sum(segment.length for segment in self.segments)


class ShardEdit(ABC):
    """A weight file with pending edits."""

    def __init__(self, source: RopeSource, file: str) -> None:
        self.file = file
        self.changed = False
        self._source = source
        self.tensors: dict[str, Slot] = {}

    def _load(self, tensors: Sequence[TensorInfo]) -> None:
        rope = self._source.ropes[self.file]
        for info in tensors:
            self.tensors[info.name] = Slot(info.dtype, info.shape, tuple(cut(rope, info.start, info.end)))

    def drop(self, tensor: str) -> None:
        """Remove a tensor."""
        del self.tensors[tensor]
        self.changed = True

    def rename(self, old: str, new: str) -> None:
        """Rename a tensor, keeping its place in the file."""
        self.tensors = {new if name == old else name: slot for name, slot in self.tensors.items()}
        self.changed = True

    def set(self, tensor: str, dtype: str, shape: Sequence[int], data: bytes) -> None:
        """Add or replace a tensor."""
        self.put(tensor, dtype, shape, (literal(data),))

    def put(self, tensor: str, dtype: str, shape: Sequence[int], segments: Sequence[Segment]) -> None:
        """Add or replace a tensor by bytes that may lie elsewhere."""
        self.tensors[tensor] = Slot(dtype, tuple(shape), tuple(segments))
        self.changed = True

    def relabel(self, tensor: str, *, dtype: str | None = None, shape: Sequence[int] | None = None) -> None:
        """Change dtype or shape in the header only; bytes stay."""
        slot = self.tensors[tensor]
        self.tensors[tensor] = Slot(dtype or slot.dtype, slot.shape if shape is None else tuple(shape), slot.segments)
        self.changed = True

    @abstractmethod
    def rope(self) -> tuple[Segment, ...]:
        """The whole file after the edits."""


class SafetensorsEdit(ShardEdit):
    """A safetensors file."""

    def __init__(self, source: RopeSource, file: str) -> None:
        super().__init__(source, file)
        header = read_header(source, file)
        self.metadata = dict(header.metadata)
        self._load(sorted(header.tensors.values(), key=lambda info: info.start))

    def rope(self) -> tuple[Segment, ...]:
        """Header padded to 8 bytes with spaces, as the reference writer does."""
        entries = ((name, slot.dtype, slot.shape, slot.nbytes) for name, slot in self.tensors.items())
        data = [segment for slot in self.tensors.values() for segment in slot.segments]
        return (literal(header_bytes(entries, self.metadata)), *data)


class GgufEdit(ShardEdit):
    """A GGUF file; `metadata` and `value_types` may be changed as well (then set `changed`)."""

    def __init__(self, source: RopeSource, file: str) -> None:
        super().__init__(source, file)
        self.header = read_gguf(source, file)
        self.metadata = dict(self.header.metadata)
        self.value_types = dict(self.header.value_types)
        self._load(sorted(self.header.tensors.values(), key=lambda info: info.start))

    def set_metadata(self, key: str, value: Any, kind: tuple[int, int | None] | None = None) -> None:
        """Set one metadata value; a new key needs its type."""
        self.metadata[key] = value
        if kind is not None:
            self.value_types[key] = kind
        self.changed = True

    def drop_metadata(self, key: str) -> None:
        """Remove one metadata pair."""
        del self.metadata[key]
        del self.value_types[key]
        self.changed = True

    def rope(self) -> tuple[Segment, ...]:
        """Header and data, each tensor padded to the alignment."""
        ids = {f"GGUF:{kind.name}": number for number, kind in GGML_TYPES.items()}
        entries: list[tuple[str, tuple[int, ...], int, int]] = []
        data: list[Segment] = []
        cursor = 0
        for name, slot in self.tensors.items():
            entries.append((name, slot.shape, ids[slot.dtype], cursor))
            padding = -slot.nbytes % self.header.alignment
            data += [*slot.segments, *([literal(b"\0" * padding)] if padding else [])]
            cursor += slot.nbytes + padding
        header = encode_header(self.metadata, self.value_types, entries, self.header.alignment)
        return (literal(header), *data)
