"""Statistics of dequantised values, for a batch of modules at once."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.module_profile import ValueStats

MAX_MEDIAN_VALUES = 4096
"""A median needs a sort; so many values, evenly taken, give it to 2 %."""


def value_stats(values: Array) -> list[ValueStats]:
    """[modules, outputs, in] float32 -> one record a module."""
    squares = np.einsum("moi,moi->mo", values, values, dtype=np.float32)  # [modules, outputs]
    sums = values.sum(axis=2, dtype=np.float32)
    return [_stats(values[index], squares[index], sums[index]) for index in range(len(values))]


def _stats(values: Array, squares: Array, sums: Array) -> ValueStats:
    count, nonfinite = values.size, 0
    if not np.isfinite(squares).all():
        is_finite = np.isfinite(values)
        nonfinite = count - int(is_finite.sum())
        wide = np.where(is_finite, values, 0).astype(np.float64)
        values, squares, sums, count = wide, (wide * wide).sum(axis=1), wide.sum(axis=1), count - nonfinite
    mean = float(sums.sum(dtype=np.float64)) / max(count, 1)
    mean_square = float(squares.sum(dtype=np.float64)) / max(count, 1)
    flat = values.reshape(-1)
    some = np.abs(flat[:: max(1, flat.size // MAX_MEDIAN_VALUES)])
    with np.errstate(divide="ignore"):
        rows = 0.5 * np.log(squares / values.shape[1])
    return ValueStats(
        rms=mean_square**0.5,
        mean=mean,
        std=max(mean_square - mean * mean, 0.0) ** 0.5,
        absmax=max(float(flat.max()), -float(flat.min())),
        median_abs=float(np.median(some)),
        nonfinite=nonfinite,
        log_row_rms=tuple(rows.tolist()),
    )
