"""Exact facts of floating-point tensors, one chunk at a time. See float_bits.py for the arithmetic.

Healthy chunks take two or three passes in the cache. Only a chunk in which something was found is looked at again, for
the place.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.float_bits import FloatBits
from degarble.profile.lines import Chunk
from degarble.profile.tensor_profile import NO_ROWS, Place, TensorProfile, ValueCounts
from degarble.profile.word_rows import head_key, rows_where, uniform_pattern


def profile_floats(chunk: Chunk, bits: FloatBits, scratch: Array | None = None) -> list[TensorProfile]:
    """One partial profile a tensor. `scratch`: bytes to overwrite, at least as many as the chunk has."""
    patterns = chunk.raw.view(bits.unsigned)  # [tensors, lines, numbers of a line]
    out = None
    if scratch is not None and bits.table is None:
        out = scratch[: chunk.raw.size].view(bits.unsigned).reshape(patterns.shape)
    doubled = bits.doubled(patterns, out)
    tops = doubled.max(axis=2)  # [tensors, lines]
    extremes = _extremes(bits, patterns, doubled) if chunk.is_detailed else [None] * len(tops)
    return [
        _profile(chunk, bits, index, patterns[index], doubled[index], tops[index], extremes[index])
        for index in range(len(chunk.tensors))
    ]


def _profile(
    chunk: Chunk, bits: FloatBits, index: int, patterns: Array, doubled: Array, tops: Array, extremes: Extremes | None
) -> TensorProfile:
    info, top, least = chunk.tensors[index], int(tops.max()), int(tops.min())
    columns = info.shape[-1] if info.shape else 1
    offset = chunk.start // bits.unsigned.itemsize
    constant = uniform_pattern(patterns) if top == least else None
    nonfinite, first_nonfinite = 0, None
    if top >= bits.nonfinite:
        is_bad = doubled >= bits.nonfinite
        nonfinite, first_nonfinite = int(is_bad.sum()), place(is_bad, offset, columns)
        finite = doubled[~is_bad]
        top = int(finite.max()) if finite.size else -1
    zero_rows, flat_bytes, first_flat = NO_ROWS, 0, None
    row_tops = tops.reshape(-1, chunk.lines_per_row).max(axis=1) if chunk.lines_per_row > 1 else tops
    if least == 0:
        flat_bytes, first_flat = _zero_lines(tops, chunk)
        if chunk.lines_per_row:
            zero_rows = rows_where(row_tops == 0, chunk.first_row)
    keep = chunk.lines_per_row and not chunk.is_detailed and len(info.shape) > 1
    return TensorProfile(
        name=info.name,
        dtype=info.dtype,
        shape=info.shape,
        num_rows=chunk.num_rows,
        count=patterns.size,
        nonfinite=nonfinite,
        first_nonfinite=first_nonfinite,
        absmax=bits.magnitude(top) if top >= 0 else None,
        constant=constant,
        zero_rows=zero_rows,
        flat_bytes=flat_bytes,
        first_flat=first_flat,
        key=head_key(chunk.raw[index]) if chunk.start == 0 else b"",
        counts=_counts(bits, patterns, doubled, extremes, offset, columns) if extremes is not None else None,
        sums=_sums(bits, patterns, doubled) if chunk.is_detailed and len(info.shape) < 2 else None,
        row_tops=((chunk.first_row, row_tops),) if keep else (),
    )


def _zero_lines(tops: Array, chunk: Chunk) -> tuple[int, int | None]:
    if chunk.raw.shape[2] < 512:
        return 0, None
    zero = np.flatnonzero(tops == 0)
    return zero.size * chunk.raw.shape[2], chunk.start + int(zero[0]) * chunk.raw.shape[2] if zero.size else None


def place(flags: Array, offset: int, columns: int) -> Place:
    """Row and column of the first marked number; `offset` is the tensor's index of the chunk's first."""
    row, column = divmod(offset + int(flags.argmax()), max(columns, 1))
    return row, column


class Extremes(NamedTuple):
    """What tells whether a tensor has anything to count; doubled patterns."""

    has_negative: bool
    smallest: int
    """Of the numbers above zero; `nonfinite` if there are none."""
    least: int
    """Of the numbers that are not zero."""
    has_zero: bool


def _extremes(bits: FloatBits, patterns: Array, doubled: Array) -> list[Extremes]:
    """Four reductions over all tensors; unsigned wrap-around puts zero last."""
    highest, lowest = patterns.max(axis=(1, 2)).tolist(), doubled.min(axis=(1, 2)).tolist()
    positive = (patterns - bits.unsigned.type(1)).min(axis=(1, 2)).tolist()
    magnitudes = (doubled - doubled.dtype.type(1)).min(axis=(1, 2)).tolist()
    found = []
    for high, low, pattern, magnitude in zip(highest, lowest, positive, magnitudes, strict=True):
        is_there = bits.has_sign and pattern + 1 < bits.sign
        smallest = bits.twice(pattern + 1) if is_there else bits.nonfinite if bits.has_sign else low
        found.append(Extremes(high > bits.sign, smallest, magnitude + 1, low == 0))
    return found


def _counts(
    bits: FloatBits, patterns: Array, doubled: Array, extremes: Extremes, offset: int, columns: int
) -> ValueCounts:
    found: dict[str, Any] = {}
    if extremes.smallest < bits.nonfinite:
        found["min_positive"] = bits.magnitude(extremes.smallest)
    if extremes.has_zero:
        found |= _counted("zeros", "first_zero", doubled == 0, offset, columns)
    if extremes.has_negative:
        is_negative = (patterns > bits.sign) & (doubled < bits.nonfinite)
        found |= _counted("negatives", "first_negative", is_negative, offset, columns)
    if extremes.least < bits.normal:
        is_subnormal = (doubled < bits.normal) & (doubled > 0)
        found |= _counted("subnormals", "first_subnormal", is_subnormal, offset, columns)
    return ValueCounts(**found)


def _counted(many: str, first: str, flags: Array, offset: int, columns: int) -> dict[str, Any]:
    count = int(np.count_nonzero(flags))
    return {many: count, first: place(flags, offset, columns)} if count else {}


def _sums(bits: FloatBits, patterns: Array, doubled: Array) -> tuple[float, float]:
    """Sum and sum of squares of the finite values of a short tensor."""
    with np.errstate(over="ignore", invalid="ignore"):  # NaN bits, and squares of float64's largest
        values = bits.values(patterns)[doubled < bits.nonfinite]
        return float(values.sum()), float(np.dot(values, values))
