"""The slow, obvious twins of the fast passes: what a TensorProfile and CodeStats mean, value by value.

Tests hold the fast ones to these; nothing else calls them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.profile.float_bits import GGUF_FLOATS


def numbers_reference(info: TensorInfo, raw: Array) -> dict[str, Any]:
    """The numeric fields of a TensorProfile of a floating-point tensor, by widening every value to float64."""
    dtype = DTYPES[GGUF_FLOATS.get(info.dtype, info.dtype)]
    values = raw.view(dtype).astype(np.float64).reshape(-1, info.shape[-1] if info.shape else 1)
    is_finite = np.isfinite(values)
    magnitudes = np.abs(values[is_finite])
    positive = values[is_finite & (values > 0)]
    smallest = _smallest_normal(dtype)
    return {
        "count": values.size,
        "nonfinite": int((~is_finite).sum()),
        "first_nonfinite": first_place(~is_finite),
        "absmax": float(magnitudes.max()) if magnitudes.size else None,
        "zero_rows": tuple(np.flatnonzero((values == 0).all(axis=1)).tolist()),
        "zeros": int((values == 0).sum()),
        "first_zero": first_place(values == 0),
        "negatives": int((is_finite & (values < 0)).sum()),
        "first_negative": first_place(is_finite & (values < 0)),
        "subnormals": int((is_finite & (values != 0) & (np.abs(values) < smallest)).sum()),
        "min_positive": float(positive.min()) if positive.size else None,
        "total": float(np.sum(values[is_finite], dtype=np.longdouble)),
    }


def _smallest_normal(dtype: np.dtype[Any]) -> float:
    import ml_dtypes

    if dtype == np.dtype(ml_dtypes.float8_e8m0fnu):
        return 0.0
    return float(ml_dtypes.finfo(dtype).smallest_normal)  # type: ignore[no-untyped-call]


def first_place(flags: Array) -> tuple[int, int] | None:
    """Row and column of the first marked value, in reading order."""
    for row, line in enumerate(flags.tolist()):
        if True in line:
            return row, line.index(True)
    return None


def constant_rows_reference(raw: Array, num_rows: int) -> tuple[int, ...]:
    """Rows that repeat their first eight bytes, or their first byte where they are no whole number of eights."""
    rows = raw.reshape(num_rows, -1)
    width = 8 if rows.shape[1] % 8 == 0 else 1
    return tuple(index for index, row in enumerate(rows) if (row.reshape(-1, width) == row[:width]).all())


def codes_reference(codes: Array, zeros: Array, num_bits: int) -> dict[str, float | None]:
    """Fields of CodeStats for one module: codes [outputs, groups, group], zeros [outputs, groups]."""
    top, size = (1 << num_bits) - 1, codes.shape[2]
    shifts, means = [], []
    low = 0 if np.ptp(zeros) else 1
    reached = both = zero = ended = 0
    for output in range(codes.shape[0]):
        for group in range(codes.shape[1]):
            members = codes[output, group].tolist()
            means.append(sum(members) / size)
            shifts.append(means[-1] - float(zeros[output, group]))
            reached += 0 in members or top in members
            both += 0 in members and top in members
            zero += 0 in members
            ended += min(members) <= low or top in members
    count = len(means)
    flat = codes.reshape(len(codes), -1)
    share = [sum(code <= low or code == top for code in row) / len(row) for row in flat.tolist()]
    expected = sum((1 - one) ** size for one in share) / len(share)
    return {
        "shift": float(np.median(shifts)),
        "extremes": reached / count,
        "both_ends": both / count,
        "reach_zero": zero / count,
        "rho": (1 - ended / count) / expected if any(share) and expected > 0 else None,
        "correlation": float(np.corrcoef(means, zeros.reshape(-1))[0, 1]) if np.ptp(zeros) and np.ptp(means) else None,
    }
