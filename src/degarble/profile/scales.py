"""Statistics of all scales of a module. They are small, so they are all looked at; only outliers cost a sort."""

from __future__ import annotations

from math import gcd

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.median import median, median_of_numbers
from degarble.profile.module_profile import Place, ScaleStats
from degarble.profile.swizzle import TILE_COLUMNS, TILE_ROWS, swizzle_deviations

SUSPICIOUS_OCTAVES = 3.0
"""The rules ask for more than 4 octaves. A single outlier of d octaves leaves (1 - 1/columns)(1 - 1/rows) d around
plain means, which cost no sort; what stays below this share of the bound is not looked at again."""
SUSPICIOUS_IN_BLOCKS = 1.5
"""For the grids of block-scaled FP8, whose bound is 2."""
FEW_SCALES = 1024
"""So many scales, evenly taken, give the median and the share of powers of two."""
SEVERAL_COLUMNS = 4096
TILED_ROWS = 512
"""Rows whose order is judged."""
MANTISSA = np.int32((1 << 23) - 1)
MAGNITUDE = np.int32(0x7FFFFFFF)


def scale_stats(scales: Array, suspicious: float = SUSPICIOUS_OCTAVES, *, with_tiles: bool = False) -> list[ScaleStats]:
    """[modules, rows, columns] float32 -> one record a module.

    `suspicious`: residuals above it are made exact. `with_tiles`: ask whether the scales lie in tile order.
    """
    scales = np.ascontiguousarray(scales, np.float32)
    if not scales.size:
        return [_empty(scales.shape[1:]) for _ in scales]
    flat = scales.reshape(len(scales), -1)
    lows, highs, some = flat.min(axis=1), flat.max(axis=1), _some(flat)
    fractions = np.count_nonzero(some.view(np.int32) & MANTISSA, axis=1) / some.shape[1]
    with np.errstate(invalid="ignore"):
        is_ordinary = (lows > 0) & np.isfinite(highs)  # false for a NaN
    medians = median(log2_bits(some))
    logs = log2_bits(scales, is_positive=bool(is_ordinary.all()))
    row_logs = np.einsum("mrc->mr", logs) / np.float32(logs.shape[2])  # three times as fast as `mean` on short rows
    for index in np.flatnonzero(~is_ordinary).tolist():
        row_logs[index] = _row_means(scales[index], logs[index])
    ratios, rows = _row_ratios(row_logs)
    residuals, places = _residuals(scales, logs, row_logs, suspicious, is_ordinary)
    found = []
    for index in range(len(scales)):
        odd = {} if is_ordinary[index] else _odd(scales[index])
        found.append(
            ScaleStats(
                shape=(scales.shape[1], scales.shape[2]),
                nonfinite=odd.get("nonfinite", 0),  # type: ignore[arg-type]
                first_nonfinite=odd.get("first_nonfinite"),  # type: ignore[arg-type]
                zeros=odd.get("zero", 0),  # type: ignore[arg-type]
                first_zero=odd.get("first_zero"),  # type: ignore[arg-type]
                negatives=odd.get("negative", 0),  # type: ignore[arg-type]
                first_negative=odd.get("first_negative"),  # type: ignore[arg-type]
                min_positive=odd.get("low") if odd else float(lows[index]),  # type: ignore[arg-type]
                absmax=odd.get("high") if odd else float(highs[index]),  # type: ignore[arg-type]
                power_of_two=1 - float(fractions[index]),
                log2_median=float(medians[index]) if np.isfinite(medians[index]) else None,
                residual=float(residuals[index]),
                residual_at=places[index],
                row_ratio=float(ratios[index]),
                row_at=rows[index],
                tiles=swizzle_deviations(_whole_tiles(scales[index])) if with_tiles else None,
            )
        )
    return found


def _empty(shape: tuple[int, ...]) -> ScaleStats:
    return ScaleStats(
        shape=(shape[0], shape[1]), nonfinite=0, first_nonfinite=None, zeros=0, first_zero=None, negatives=0,
        first_negative=None, min_positive=None, absmax=None, power_of_two=0.0, log2_median=None, residual=0.0,
        residual_at=None, row_ratio=0.0, row_at=None,
    )  # fmt: skip


def _whole_tiles(scales: Array) -> Array:
    """The first rows and columns that make whole tiles."""
    rows = min(TILED_ROWS, len(scales) // TILE_ROWS * TILE_ROWS)
    return scales[:rows, : scales.shape[1] // TILE_COLUMNS * TILE_COLUMNS]


def _odd(scales: Array) -> dict[str, int | float | Place | None]:
    """Counts and places of what no healthy scale is, and the range of the others."""
    is_finite = np.isfinite(scales)
    found: dict[str, int | float | Place | None] = {"low": None, "high": None}
    for what, flags in (("nonfinite", ~is_finite), ("zero", scales == 0), ("negative", is_finite & (scales < 0))):
        count = int(np.count_nonzero(flags))
        if count:
            row, column = np.unravel_index(int(flags.argmax()), flags.shape)
            found |= {what: count, f"first_{what}": (int(row), int(column))}
    positive, magnitudes = scales[is_finite & (scales > 0)], np.abs(scales[is_finite])
    if positive.size:
        found["low"] = float(positive.min())
    if magnitudes.size:
        found["high"] = float(magnitudes.max())
    return found


def log2_bits(scales: Array, *, is_positive: bool = False) -> Array:
    """log2 of |scale| by its exponent, straight between powers of two: at most 0.09 too small, as fast as a copy."""
    bits = scales.view(np.int32) if is_positive else scales.view(np.int32) & MAGNITUDE
    logs = np.multiply(bits, np.float32(2**-23), dtype=np.float32)
    logs -= np.float32(127)
    return logs


def _some(flat: Array) -> Array:
    return np.ascontiguousarray(flat[:, :: max(1, flat.shape[1] // FEW_SCALES)])


def _residuals(
    scales: Array, logs: Array, row_logs: Array, suspicious: float, is_ordinary: Array
) -> tuple[Array, list[Place | None]]:
    """Two-way residuals: around medians where plain means leave a suspicion, else the plain ones. Overwrites `logs`."""
    count, rows, columns = scales.shape
    if min(rows, columns) < 2:
        return np.zeros(count), [None] * count
    logs -= row_logs[:, :, None]
    together = gcd(rows, 1 << max(0, (SEVERAL_COLUMNS // columns).bit_length() - 1))
    wide = logs.reshape(count, -1, together * columns)  # several rows in one: numpy is slow on short ones
    column_logs = np.einsum("mrc->mc", wide).reshape(count, together, columns).sum(axis=1) / np.float32(rows)
    wide -= np.tile(column_logs, together)[:, None]
    rest, each = logs.reshape(count, -1), np.arange(count)
    top, bottom = rest.argmax(axis=1), rest.argmin(axis=1)
    at = np.where(rest[each, top] > -rest[each, bottom], top, bottom)
    residuals = np.abs(rest[each, at])
    places: list[Place | None] = [(int(one) // columns, int(one) % columns) for one in at]
    limit = suspicious * (1 - 1 / columns) * (1 - 1 / rows)
    for index in np.flatnonzero(~is_ordinary | (residuals >= limit)):
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = np.log2(np.abs(scales[index]))
        residuals[index], places[index] = two_way_residual(np.where(np.isfinite(exact), exact, np.float32(np.nan)))
    return residuals, places


def two_way_residual(logs: Array) -> tuple[float, Place | None]:
    """Largest |x - median of its row - median of its column of what is left|, and where; NaN is left out."""
    if np.isnan(logs).any():
        rest = logs - median_of_numbers(logs)[:, None]
        rest = np.abs(np.nan_to_num(rest - median_of_numbers(rest.T)))
    else:
        rest = logs - median(logs)[:, None]
        rest = np.abs(rest - median(rest.T))
    row, column = np.unravel_index(int(rest.argmax()), rest.shape)
    return float(rest.max()), (int(row), int(column))


def _row_means(scales: Array, logs: Array) -> Array:
    """[rows] means over scales that have a logarithm; rows without one are given the others' median."""
    is_number = np.isfinite(scales) & (scales != 0)
    counts = is_number.sum(axis=1)
    means: Array = np.where(is_number, logs, 0).sum(axis=1) / np.maximum(counts, 1)
    means[counts == 0] = np.median(means[counts > 0]) if counts.any() else 0.0
    return means


def _row_ratios(row_logs: Array) -> tuple[Array, list[int | None]]:
    """The row whose scales are farthest from the others'. A row's mean log stands for its median."""
    if row_logs.shape[1] < 2:
        return np.zeros(len(row_logs)), [None] * len(row_logs)
    away = np.abs(row_logs - median(row_logs)[:, None])
    at = away.argmax(axis=1)
    return away[np.arange(len(away)), at], [int(one) for one in at]
