"""Scale statistics: oddities with their places, outliers, and tile order."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble.profile.median import median, median_of_numbers
from degarble.profile.scales import log2_bits, scale_stats, two_way_residual
from degarble.profile.swizzle import swizzle_deviations, swizzled, unswizzled


def some_scales(rows: int = 96, columns: int = 32, seed: int = 0) -> Array:
    """Rows and columns of unequal size, with noise of half an octave."""
    rng = np.random.default_rng(seed)
    effects = rng.normal(size=(rows, 1)) + 0.7 * rng.normal(size=(1, columns)) + 0.3 * rng.normal(size=(rows, columns))
    return np.exp2(effects - 7).astype(np.float32)


def test_ordinary_scales() -> None:
    scales = some_scales()
    (stats,) = scale_stats(scales[None])
    assert (stats.nonfinite, stats.zeros, stats.negatives) == (0, 0, 0)
    assert (stats.min_positive, stats.absmax) == (float(scales.min()), float(scales.max()))
    assert stats.log2_median == pytest.approx(float(np.median(np.log2(scales))), abs=0.15)
    assert stats.residual < 2 and stats.power_of_two == 0 and stats.tiles is None


def test_oddities_have_places_and_do_not_hide_each_other() -> None:
    scales = some_scales()
    scales[3, 4], scales[5, 6], scales[7, 8], scales[9, 1] = np.nan, 0, -1, np.inf
    (stats,) = scale_stats(scales[None])
    assert (stats.nonfinite, stats.first_nonfinite) == (2, (3, 4))
    assert (stats.zeros, stats.first_zero) == (1, (5, 6))
    assert (stats.negatives, stats.first_negative) == (1, (7, 8))
    assert stats.min_positive == float(scales[np.isfinite(scales) & (scales > 0)].min())


def test_all_zero_and_all_nan() -> None:
    for value in (0.0, np.nan):
        (stats,) = scale_stats(np.full((1, 4, 4), value, np.float32))
        assert stats.min_positive is None
        assert np.isfinite(stats.residual) and np.isfinite(stats.row_ratio)


@pytest.mark.parametrize("factor", [16, 64, 1 / 64])
def test_one_block_outlier_is_placed(factor: float) -> None:
    scales = some_scales(192, 40)
    scales[100, 17] *= factor
    (stats,) = scale_stats(scales[None])
    exact, place = two_way_residual(np.log2(scales))
    assert place == (100, 17)
    if exact > 4:
        assert stats.residual_at == (100, 17)
        assert stats.residual == pytest.approx(exact)


def test_one_row_outlier_is_placed() -> None:
    scales = some_scales()
    scales[42] *= 256
    (stats,) = scale_stats(scales[None])
    assert stats.row_at == 42 and stats.row_ratio > 5


def test_the_fast_logarithm_is_close_and_ordered() -> None:
    values = np.sort(np.exp(np.random.default_rng(0).normal(size=5000))).astype(np.float32)
    fast = log2_bits(values)
    assert np.abs(fast - np.log2(values)).max() < 0.09
    assert (np.diff(fast) >= 0).all()


def test_tiles() -> None:
    scales = some_scales(256, 16)
    assert np.array_equal(unswizzled(swizzled(scales)), scales)
    tile = swizzled(np.arange(128 * 4).reshape(128, 4)).reshape(-1)
    for row, column in ((0, 0), (1, 2), (33, 1), (127, 3)):
        assert tile[row % 32 * 16 + row // 32 * 4 + column] == row * 4 + column
    right, wrong = swizzle_deviations(scales), swizzle_deviations(swizzled(scales))
    assert right is not None and wrong is not None and right > 6 and wrong < -6
    assert swizzle_deviations(scales[:100]) is None
    noise = np.exp2(np.random.default_rng(1).normal(size=(256, 16)))
    assert abs(swizzle_deviations(noise) or 0) < 4


@pytest.mark.parametrize("count", [1, 2, 3, 8, 101])
def test_median_is_numpys(count: int) -> None:
    values = np.random.default_rng(count).normal(size=(7, count))
    values[3, 0] = np.nan
    assert np.array_equal(median(values), np.median(values, axis=1), equal_nan=True)
    assert np.array_equal(
        median_of_numbers(values), [np.nanmedian(row) if row.size > 1 or row[0] == row[0] else 0 for row in values]
    )
