"""Medians along the last axis. numpy's own loads numpy.ma on first use, which costs more than a small checkpoint."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array


def median(values: Array) -> Array:
    """[..., n] -> [...]; NaN where a row holds one, as numpy's."""
    count = values.shape[-1]
    middle = count // 2
    sorted_near = np.partition(values, (middle - 1, middle, count - 1) if count > 1 else 0, axis=-1)
    found = sorted_near[..., middle]
    if count % 2 == 0:
        found = (found + sorted_near[..., middle - 1]) / 2
    last = sorted_near[..., count - 1]  # NaN sorts last
    return np.asarray(np.where(np.isnan(last), last, found))


def median_of_numbers(values: Array) -> Array:
    """[..., n] -> [...], NaN left out; 0 for rows of nothing but NaN."""
    ordered = np.sort(values, axis=-1)  # NaN sorts last
    count = np.count_nonzero(~np.isnan(values), axis=-1)[..., None]
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=-1)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[-1] - 1), axis=-1)
    return np.asarray(np.where(count > 0, (low + high) / 2, 0)[..., 0])
