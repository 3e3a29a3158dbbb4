"""Block scales in tile order under a logical shape: kernels read scales in tiles of 128 rows by 4 columns.

    tile, 512 scales:   place of (row r, column c) = (r % 32) * 16 + (r // 32) * 4 + c

Rows of a weight differ, and so do its columns. Means of rows and of columns therefore explain a share of the variance
of log2 scale, and explain more of it in the true order than in any other: no reference is needed.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

TILE_ROWS, TILE_COLUMNS = 128, 4


def swizzled(scales: Array) -> Array:
    """Logical [rows, columns], multiples of 128 and 4, to tile order under the same shape."""
    rows, columns = scales.shape
    tiles = scales.reshape(rows // TILE_ROWS, 4, 32, columns // TILE_COLUMNS, TILE_COLUMNS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(rows, columns)


def unswizzled(scales: Array) -> Array:
    """Undo `swizzled`."""
    rows, columns = scales.shape
    tiles = scales.reshape(rows // TILE_ROWS, columns // TILE_COLUMNS, 32, 4, TILE_COLUMNS)
    return tiles.transpose(0, 3, 2, 1, 4).reshape(rows, columns)


def explained(logs: Array) -> float:
    """Share of the variance that row means and column means explain."""
    centred = logs - logs.mean()
    total = float(np.square(centred).sum())
    if total <= 0:
        return 0.0
    rows = float(np.square(centred.mean(axis=1)).sum()) * logs.shape[1]
    columns = float(np.square(centred.mean(axis=0)).sum()) * logs.shape[0]
    return float((rows + columns) / total)


def swizzle_deviations(scales: Array) -> float | None:
    """How much better the stored order explains the scales than the unswizzled one, in standard deviations.

    None where tiles do not fit, or a scale has no logarithm. Healthy above 0; below -6 the scales are swizzled.
    """
    rows, columns = scales.shape
    if rows % TILE_ROWS or columns % TILE_COLUMNS or not rows or columns <= TILE_COLUMNS:
        return None
    if not bool((scales > 0).all()) or not bool(np.isfinite(scales).all()):
        return None
    logs = np.log2(scales)
    margin = explained(logs) - explained(unswizzled(logs))
    deviation = np.sqrt(2) * (np.sqrt(2 / rows) / columns + np.sqrt(2 / columns) / rows)
    return float(margin / deviation)
