"""Writes GGUF headers (version 3), the exact inverse of `read_gguf`. Data is left to the caller."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from degarble.checkpoint.gguf import SCALARS

TensorEntry = tuple[str, tuple[int, ...], int, int]
"""Name, logical shape, ggml type id, offset from the start of data."""


def encode_header(
    metadata: Mapping[str, Any],
    value_types: Mapping[str, tuple[int, int | None]],
    tensors: Sequence[TensorEntry],
    alignment: int,
) -> bytes:
    """Header with its padding, so that data follows directly."""
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, value in metadata.items():
        kind, inner = value_types[key]
        parts += [_text(key), struct.pack("<I", kind), _value(value, kind, inner)]
    for name, shape, type_id, offset in tensors:
        axes = struct.pack(f"<{len(shape)}Q", *reversed(shape))
        parts += [_text(name), struct.pack("<I", len(shape)), axes, struct.pack("<IQ", type_id, offset)]
    header = b"".join(parts)
    return header + b"\0" * (-len(header) % alignment)


def _value(value: Any, kind: int, inner: int | None) -> bytes:
    if kind == 8:
        return _text(value)
    if kind in SCALARS:
        return np.asarray(value, np.dtype(SCALARS[kind])).tobytes()
    if inner is None:
        raise ValueError("an array needs its element type")
    start = struct.pack("<IQ", inner, len(value))
    if inner == 8:
        return start + b"".join(_text(item) for item in value)
    return start + np.asarray(value, np.dtype(SCALARS[inner])).tobytes()


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return struct.pack("<Q", len(raw)) + raw
