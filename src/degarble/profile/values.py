"""Statistics of dequantised values, for a batch of modules at once."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.median import median
from degarble.profile.module_profile import ValueStats

MAX_MEDIAN_VALUES = 2048
"""A median needs a sort; so many values, evenly taken, give it to 2 %."""


def value_stats(values: Array) -> list[ValueStats]:
    """[modules, outputs, in] float32 -> one record a module."""
    squares = np.einsum("moi,moi->mo", values, values, dtype=np.float32)  # [modules, outputs]
    if not np.isfinite(squares).all():
        return [_careful(one) for one in values]
    sums = values.sum(axis=2, dtype=np.float32)
    flat = values.reshape(len(values), -1)
    some = np.abs(flat[:, :: max(1, flat.shape[1] // MAX_MEDIAN_VALUES)])
    tops, medians = np.maximum(flat.max(axis=1), -flat.min(axis=1)), median(some)
    return [
        stats_of_rows(squares[index], sums[index], values.shape[2], float(tops[index]), float(medians[index]), 0)
        for index in range(len(values))
    ]


def _careful(values: Array) -> ValueStats:
    """In float64 and without infinities and NaNs."""
    is_finite = np.isfinite(values)
    wide = np.where(is_finite, values, 0).astype(np.float64)
    magnitudes = np.abs(wide[is_finite])
    return stats_of_rows(
        (wide * wide).sum(axis=1),
        wide.sum(axis=1),
        values.shape[1],
        float(magnitudes.max(initial=0)),
        float(median(magnitudes)) if magnitudes.size else 0.0,
        int(values.size - is_finite.sum()),
    )


def stats_of_rows(squares: Array, sums: Array, inputs: int, top: float, median: float, nonfinite: int) -> ValueStats:
    """One record from the sums of each row's squares and values."""
    count = max(1, squares.size * inputs - nonfinite)
    mean = float(sums.sum(dtype=np.float64)) / count
    mean_square = float(squares.sum(dtype=np.float64)) / count
    with np.errstate(divide="ignore"):
        rows = 0.5 * np.log(squares / inputs)
    return ValueStats(
        rms=mean_square**0.5,
        mean=mean,
        std=max(mean_square - mean * mean, 0.0) ** 0.5,
        absmax=top,
        median_abs=median,
        nonfinite=nonfinite,
        log_row_rms=tuple(rows.tolist()),
    )
