"""Statistics of all scales of a module. They are small, so they are all looked at; only outliers cost a sort."""

from __future__ import annotations

import warnings

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.module_profile import Place, ScaleStats

SUSPICIOUS_OCTAVES = 3.0
"""The rules ask for more than 4. A single outlier of d octaves leaves at least (1 - 1/columns)(1 - 1/rows) d around
plain means, which cost no sort."""
SUSPICIOUS_IN_FEW = 1.5
"""The grids of FP8 blocks are small, and their bound is 2."""
FEW = 1 << 16
EXACT_COUNT = 4096
"""Fewer scales than this are judged by medians at once."""
MANTISSA = (1 << 23) - 1
MAGNITUDE = np.int32(0x7FFFFFFF)


def scale_stats(scales: Array) -> list[ScaleStats]:
    """[modules, rows, columns] float32 -> one record a module."""
    return [_stats(np.ascontiguousarray(one, np.float32)) for one in scales]


def _stats(scales: Array) -> ScaleStats:
    low, high = float(scales.min(initial=np.inf)), float(scales.max(initial=-np.inf))
    is_ordinary = scales.size > 0 and low > 0 and np.isfinite(high)  # false for a NaN
    found: dict[str, int | Place | None] = {}
    logs = log2_bits(scales)
    if not is_ordinary:
        is_finite = np.isfinite(scales)
        found |= _found("nonfinite", ~is_finite) | _found("zero", scales == 0) | _found("negative", scales < 0)
        positive = scales[is_finite & (scales > 0)]
        magnitudes = np.abs(scales[is_finite])
        low = float(positive.min()) if positive.size else 0.0
        high = float(magnitudes.max()) if magnitudes.size else -1.0
        logs = np.where(is_finite & (scales != 0), logs, np.nan)
    residual, place = _residual(scales, logs)
    ratio, row = _row_ratio(logs)
    return ScaleStats(
        shape=(scales.shape[0], scales.shape[1]),
        nonfinite=found.get("nonfinite", 0),  # type: ignore[arg-type]
        first_nonfinite=found.get("first_nonfinite"),  # type: ignore[arg-type]
        zeros=found.get("zero", 0),  # type: ignore[arg-type]
        first_zero=found.get("first_zero"),  # type: ignore[arg-type]
        negatives=found.get("negative", 0),  # type: ignore[arg-type]
        first_negative=found.get("first_negative"),  # type: ignore[arg-type]
        min_positive=low if low > 0 else None,
        absmax=high if high >= 0 else None,
        power_of_two=1 - int(np.count_nonzero(scales.view(np.int32) & MANTISSA)) / max(scales.size, 1),
        log2_median=_median(logs),
        residual=residual,
        residual_at=place,
        row_ratio=ratio,
        row_at=row,
    )


def _found(what: str, flags: Array) -> dict[str, int | Place | None]:
    count = int(np.count_nonzero(flags))
    if not count:
        return {}
    row, column = np.unravel_index(int(flags.argmax()), flags.shape)
    return {what: count, f"first_{what}": (int(row), int(column))}


def log2_bits(scales: Array) -> Array:
    """log2 of |scale| by its exponent, straight between powers of two: at most 0.09 too small, and as fast as a copy."""
    logs = (scales.view(np.int32) & MAGNITUDE).astype(np.float32)
    logs *= np.float32(2**-23)
    logs -= np.float32(127)
    return logs


def _median(logs: Array) -> float | None:
    flat = logs.reshape(-1)
    some = flat[:: max(1, flat.size // EXACT_COUNT)]
    some = some[~np.isnan(some)]
    return float(np.median(some)) if some.size else None


def _residual(scales: Array, logs: Array) -> tuple[float, Place | None]:
    """The two-way residual: by medians where plain means leave a suspicion, else the plain one."""
    if min(scales.shape) < 2:
        return 0.0, None
    if scales.size > EXACT_COUNT:
        rest = logs - logs.mean(axis=1, keepdims=True)
        rest -= rest.mean(axis=0)
        high, low = float(rest.max()), float(rest.min())
        if max(high, -low) < (SUSPICIOUS_IN_FEW if scales.size < FEW else SUSPICIOUS_OCTAVES):  # false for a NaN
            at = int(rest.argmax() if high > -low else rest.argmin())
            return max(high, -low), _place(at, scales.shape)
    return two_way_residual(np.log2(np.where(np.isnan(logs), np.float32(np.nan), np.abs(scales))))


def two_way_residual(logs: Array) -> tuple[float, Place | None]:
    """Largest |x - median of its row - median of its column of what is left|, and where; NaN is left out."""
    if np.isnan(logs).any():
        rest = _without_nan(logs)
    else:
        rest = logs - np.median(logs, axis=1, keepdims=True)
        rest = np.abs(rest - np.median(rest, axis=0))
    at = int(rest.argmax())
    return float(rest.reshape(-1)[at]), _place(at, logs.shape)


def _without_nan(logs: Array) -> Array:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # rows of nothing but NaN
        rest = logs - np.nanmedian(logs, axis=1, keepdims=True)
        return np.abs(np.nan_to_num(rest - np.nanmedian(rest, axis=0)))


def _place(index: int, shape: tuple[int, ...]) -> Place:
    row, column = divmod(index, shape[1])
    return row, column


def _row_ratio(logs: Array) -> tuple[float, int | None]:
    """The row whose scales are farthest from the others'. Its mean log stands for its median."""
    if len(logs) < 2:
        return 0.0, None
    rows = logs.mean(axis=1)
    rows = rows - np.nanmedian(rows) if not np.isnan(rows).all() else np.zeros_like(rows)
    away = np.abs(np.nan_to_num(rows))
    at = int(away.argmax())
    return float(away[at]), at
