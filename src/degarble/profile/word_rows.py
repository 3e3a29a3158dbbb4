"""Exact facts of integers and packed codes: what repeats. OR and AND of a line are equal where it is one pattern.

Two words that differ prove that a line is not one pattern, and a word with a bit set that it is not zero: a line is only
read to its end where its first words prove neither.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.lines import Chunk
from degarble.profile.tensor_profile import MAX_LISTED_ROWS, NO_ROWS, RowSet, TensorProfile

HEAD_BYTES = 512
MIN_FLAT_BYTES = 512
"""Shorter lines say nothing about holes."""
BYTES = frozenset({"U8", "I8"})
SIGNLESS = np.full(8, 0x77, np.uint8)
"""Nibbles 0 and 8 are the two zeros of E2M1, which FP4 files keep in bytes."""


def profile_words(chunk: Chunk) -> list[TensorProfile]:
    """One partial profile a tensor."""
    words = chunk.raw.view("<u8") if chunk.raw.shape[2] % 8 == 0 else chunk.raw
    mask = SIGNLESS.view(words.dtype)[0] if chunk.tensors[0].dtype in BYTES else ~words.dtype.type(0)
    first, second = words[:, :, 0], words[:, :, min(1, words.shape[2] - 1)]
    high, low = first | second, first & second
    rest = (high == low) | (high & mask == 0)
    if rest.any():
        some = words[rest]
        high[rest], low[rest] = np.bitwise_or.reduce(some, axis=1), np.bitwise_and.reduce(some, axis=1)
    is_flat, is_zero = high == low, high & mask == 0
    return [
        _profile(chunk, index, high[index], is_flat[index], is_zero[index] if is_zero[index].any() else None)
        for index in range(len(chunk.tensors))
    ]


def _profile(chunk: Chunk, index: int, high: Array, is_flat: Array, is_zero: Array | None) -> TensorProfile:
    info, line_bytes = chunk.tensors[index], chunk.raw.shape[2]
    constant, flat_bytes, first_flat = None, 0, None
    constant_rows = zero_rows = NO_ROWS
    if is_flat.any():
        constant = uniform_pattern(high) if is_flat.all() else None
        if line_bytes >= MIN_FLAT_BYTES:
            flat_bytes = int(is_flat.sum()) * line_bytes
            first_flat = chunk.start + int(is_flat.argmax()) * line_bytes
        if chunk.lines_per_row:
            patterns = high.reshape(-1, chunk.lines_per_row)
            same = is_flat.reshape(patterns.shape).all(axis=1) & (patterns == patterns[:, :1]).all(axis=1)
            constant_rows = rows_where(np.asarray(same), chunk.first_row)
    if is_zero is not None and chunk.lines_per_row:
        zero = is_zero.reshape(-1, chunk.lines_per_row).all(axis=1)
        zero_rows = rows_where(np.asarray(zero), chunk.first_row)
    return TensorProfile(
        name=info.name,
        dtype=info.dtype,
        shape=info.shape,
        num_rows=chunk.num_rows,
        count=0,
        constant=constant,
        zero_rows=zero_rows,
        constant_rows=constant_rows,
        flat_bytes=flat_bytes,
        first_flat=first_flat,
        key=head_key(chunk.raw[index]) if chunk.start == 0 else b"",
    )


def rows_where(flags: Array, first_row: int) -> RowSet:
    """The rows that are marked."""
    marked = np.flatnonzero(flags)
    if not marked.size:
        return NO_ROWS
    return RowSet(marked.size, tuple((marked[:MAX_LISTED_ROWS] + first_row).tolist()))


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
