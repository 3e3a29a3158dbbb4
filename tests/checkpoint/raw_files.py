"""Weight files built byte by byte, and a source that holds files in memory."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from degarble.checkpoint.interface import Source
from degarble.checkpoint.rope import RopeSource, literal
from degarble.errors import TargetError


class Nowhere(Source):
    """The base of a source that is in memory only."""

    kind = "hf-folder"

    @property
    def path(self) -> str:
        return "memory"

    def files(self) -> Mapping[str, int]:
        return {}

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        raise TargetError(name)


def in_memory(files: Mapping[str, bytes]) -> RopeSource:
    """A checkpoint of these files."""
    return RopeSource(Nowhere(), {name: (literal(data),) for name, data in files.items()})


def safetensors(header: Mapping[str, Any] | bytes, data: bytes = b"", *, pad: int = 0) -> bytes:
    """A file with this header; `pad` spaces go behind the JSON."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * pad
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    """One tensor of a safetensors header."""
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
