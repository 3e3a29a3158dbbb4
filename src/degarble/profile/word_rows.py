"""Exact facts of integers and packed codes: what repeats. OR and AND of a line are equal where it is one pattern."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.lines import Chunk
from degarble.profile.tensor_profile import NO_ROWS, RowSet, TensorProfile

HEAD_BYTES = 512
MIN_FLAT_BYTES = 512
"""Shorter lines say nothing about holes."""


def profile_words(chunk: Chunk, count: int = 0) -> list[TensorProfile]:
    """One partial profile a tensor. `count`: numbers that another look at the same chunk saw."""
    words = chunk.raw.view("<u8") if chunk.raw.shape[2] % 8 == 0 else chunk.raw
    high, low = np.bitwise_or.reduce(words, axis=2), np.bitwise_and.reduce(words, axis=2)  # [tensors, lines]
    is_flat = high == low
    return [
        _profile(chunk, index, high[index], is_flat[index] if is_flat[index].any() else None)
        for index in range(len(chunk.tensors))
    ]


def _profile(chunk: Chunk, index: int, high: Array, is_flat: Array | None) -> TensorProfile:
    info = chunk.tensors[index]
    constant, rows, flat_bytes, first_flat = None, NO_ROWS, 0, None
    zero_rows = NO_ROWS
    line_bytes = chunk.raw.shape[2]
    if is_flat is not None:
        constant = uniform_pattern(high) if is_flat.all() else None
        if line_bytes >= MIN_FLAT_BYTES:
            flat_bytes = int(is_flat.sum()) * line_bytes
            first_flat = chunk.start + int(is_flat.argmax()) * line_bytes
        if chunk.lines_per_row:
            patterns = high.reshape(-1, chunk.lines_per_row)
            same = is_flat.reshape(patterns.shape).all(axis=1) & (patterns == patterns[:, :1]).all(axis=1)
            rows = _rows(same, chunk.first_row)
            zero_rows = _rows(same & (patterns[:, 0] == 0), chunk.first_row)
    return TensorProfile(
        name=info.name,
        dtype=info.dtype,
        shape=info.shape,
        num_rows=chunk.num_rows,
        count=0,
        constant=constant,
        zero_rows=zero_rows,
        constant_rows=rows,
        flat_bytes=flat_bytes,
        first_flat=first_flat,
        key=head_key(chunk.raw[index]) if chunk.start == 0 else b"",
    )


def _rows(flags: Array, first_row: int) -> RowSet:
    marked = np.flatnonzero(flags)
    return RowSet(marked.size, tuple((marked + first_row).tolist())) if marked.size else NO_ROWS


def uniform_pattern(patterns: Array) -> int | None:
    """The 64-bit pattern that all these equal patterns repeat; None if they differ."""
    first = patterns.reshape(-1)[0]
    if not bool((patterns == first).all()):
        return None
    repeated = np.full(8 // patterns.dtype.itemsize, first, patterns.dtype)
    return int(repeated.view("<u8")[0])


def head_key(raw: Array) -> bytes:
    """Digest of the first bytes."""
    return blake2b(raw.reshape(-1)[:HEAD_BYTES].tobytes(), digest_size=16).digest()
