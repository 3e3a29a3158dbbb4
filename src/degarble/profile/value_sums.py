"""ValueStats of a whole module, from sums over parts of its outputs.

Sums are float64 and one a row, so what they give does not depend on how the outputs were cut. The median of |x| alone
stays that of a sample: up to 4,096 values, evenly taken from the whole module, which gives it to 2 %.

The values of a group of codes q with zero point z and scale s need not be made one by one:

    sum x    = s (sum q - n z)
    sum x^2  = s^2 (sum q^2 - 2 z sum q + n z^2)
    max |x|  = |s| max(|lowest q - z|, |highest q - z|)
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream
from degarble.profile.group_sums import GroupSums
from degarble.profile.median import median
from degarble.profile.module_profile import ValueStats
from degarble.profile.values import MAX_MEDIAN_VALUES, stats_of_rows

LARGEST = float(np.finfo(np.float32).max)


class ValueSums(msgspec.Struct, frozen=True):
    """What some outputs add up to; infinities and NaNs are counted and left out."""

    squares: Array
    """[outputs] float64"""
    totals: Array
    """[outputs] float64"""
    top: float
    """Largest magnitude."""
    nonfinite: int
    some: Array
    """Magnitudes of an even sample."""
    inputs: int
    """Values of a row that were read."""


class Place(msgspec.Struct, frozen=True):
    """Where a part lies in its module."""

    start: int
    """Outputs before it."""
    num_outputs: int
    """Outputs of the module."""

    def sampled(self, outputs: int, inputs: int) -> Array:
        """Flat places in a part of so many outputs, so that all parts together take every n-th value of the module."""
        step = max(1, self.num_outputs * inputs // MAX_MEDIAN_VALUES)
        return np.arange(-self.start * inputs % step, outputs * inputs, step)


def sums_of_values(values: Array, place: Place) -> ValueSums:
    """[outputs, in] float32"""
    squares = np.einsum("oi,oi->o", values, values).astype(np.float64)
    some = np.abs(values.reshape(-1)[place.sampled(*values.shape)])
    if np.isfinite(squares).all():
        top = max(float(values.max(initial=0)), -float(values.min(initial=0)))
        return ValueSums(squares, values.sum(axis=1).astype(np.float64), top, 0, some, values.shape[1])
    is_finite = np.isfinite(values)
    wide = np.where(is_finite, values, 0).astype(np.float64)
    top = float(np.abs(wide).max(initial=0))
    lost = int(values.size - np.count_nonzero(is_finite))
    return ValueSums(
        np.einsum("oi,oi->o", wide, wide), wide.sum(axis=1), top, lost, some[np.isfinite(some)], values.shape[1]
    )


class Moments(msgspec.Struct, frozen=True):
    """What groups of codes add up to as values."""

    squares: Array
    """[outputs] float64"""
    totals: Array
    """[outputs] float64"""
    top: float
    """Largest magnitude."""


def moments_of(stream: CodeStream, sums: GroupSums, scales: Array, zeros: Array) -> Moments | None:
    """Scales [outputs, groups], zero points the same or [1, 1]. None where a value may be no finite float32 number."""
    with np.errstate(over="ignore", invalid="ignore"):
        top = _largest(stream, sums, scales, zeros)
        if not top <= LARGEST:
            return None
        wide = scales.astype(np.float64)
        shifted, around = _about(sums, zeros.astype(np.float64))
        return Moments(_added(wide * wide * around), _added(wide * shifted), top)


def _added(values: Array) -> Array:
    """[outputs, groups] -> [outputs], one group after the other as a loop adds them, from 0 on: no sum is -0."""
    return np.asarray(values.cumsum(axis=1)[:, -1] + 0.0)


def sums_of_groups(
    stream: CodeStream, moments: Moments, scales: Array, zeros: Array, size: int, place: Place
) -> ValueSums:
    """With a sample of values."""
    flat = place.sampled(len(scales), scales.shape[1] * size)
    at = np.divmod(flat // size, scales.shape[1])
    some = stream.at(flat).astype(np.float32) - np.broadcast_to(zeros, scales.shape)[at]
    some *= scales[at]
    return ValueSums(moments.squares, moments.totals, moments.top, 0, np.abs(some), scales.shape[1] * size)


def _about(sums: GroupSums, zeros: Array) -> tuple[Array, Array]:
    """Sums of q - z and of its square: first around the nearest whole number, which loses nothing, then around z."""
    whole = np.rint(zeros)
    near = sums.total - sums.size * whole
    squares = sums.squares - whole * (sums.total + near)
    rest = zeros - whole
    shifted = near - sums.size * rest
    return shifted, squares - rest * (near + shifted)


def _largest(stream: CodeStream, sums: GroupSums, scales: Array, zeros: Array) -> float:
    """Largest |(q - z) s| as float32 gives it. Groups that reach no end of the range are unpacked where they could matter."""
    steps = np.abs(scales)
    down, up = np.abs(zeros) * steps, np.abs(np.float32(stream.last) - zeros) * steps
    bounds = np.maximum(down, up)
    if not np.isfinite(bounds.max(initial=0)):
        return float("nan")
    down *= sums.zeros > 0
    up *= sums.tops > 0
    reached = max(float(down.max(initial=0)), float(up.max(initial=0)))
    at = np.nonzero(bounds > reached)
    if not at[0].size:
        return reached
    units = stream.units.reshape(*sums.total.shape, -1)[at]
    around = np.broadcast_to(zeros, scales.shape)[at]
    values = (stream.codes(units).astype(np.float32) - around[:, None]) * scales[at][:, None]
    return max(reached, float(np.abs(values).max()))


def stats_of_parts(parts: Sequence[ValueSums]) -> ValueStats:
    """Parts in the order of outputs -> the module's statistics."""
    some = np.concatenate([part.some for part in parts])
    return stats_of_rows(
        np.concatenate([part.squares for part in parts]),
        np.concatenate([part.totals for part in parts]),
        parts[0].inputs,
        max(part.top for part in parts),
        float(median(some)) if some.size else 0.0,
        sum(part.nonfinite for part in parts),
    )
