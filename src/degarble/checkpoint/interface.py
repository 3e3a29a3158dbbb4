"""What every reader of stored weights agrees on: where bytes come from, and what a tensor is on disk."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

import msgspec

MAX_SMALL_FILE_BYTES = 256 * 1024 * 1024
"""JSON and text files above this are refused: the largest real tokenizer.json is about 35 MB."""


class TensorInfo(msgspec.Struct, frozen=True, gc=False):
    """One tensor as its container describes it; reading it needs nothing else."""

    name: str
    dtype: str
    """safetensors spelling (`BF16`, `F8_E4M3`, `I32`) or `GGUF:<type>` such as `GGUF:Q4_K`."""
    shape: tuple[int, ...]
    """As stored; GGUF's dimensions reversed, so that the last axis is contiguous everywhere."""
    file: str
    start: int
    """Absolute byte offset in `file`."""
    nbytes: int

    @property
    def end(self) -> int:
        """First byte after the tensor."""
        return self.start + self.nbytes


class Source(ABC):
    """A place that holds the files of one checkpoint: a folder, a single file, a hub repository."""

    kind: ClassVar[str]

    @property
    @abstractmethod
    def path(self) -> str:
        """What the user typed, for the report."""

    @abstractmethod
    def files(self) -> Mapping[str, int]:
        """Name relative to the checkpoint -> size in bytes, regular files only."""

    @abstractmethod
    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes [start, start + length) of a file, fewer at its end. Raises TargetError if unreadable."""

    def refused(self) -> Mapping[str, str]:
        """Names that exist but are not read, with the reason (a link that leads elsewhere, a device)."""
        return {}

    def digests(self) -> Mapping[str, str]:
        """Name -> sha256 (hex) that the place of origin vouches for; empty where none is known."""
        return {}


def element_bits(dtype: str) -> int | None:
    """Bits per element of a safetensors dtype; None if the dtype is unknown."""
    return _BITS.get(dtype)


_BITS: Mapping[str, int] = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(
        ("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"),
        8,
    ),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""The dtypes of safetensors 0.8 (`tensor.rs`)."""


def num_elements(shape: Sequence[int]) -> int:
    """Product of the axes; Python integers, so it cannot wrap."""
    total = 1
    for axis in shape:
        total *= axis
    return total
