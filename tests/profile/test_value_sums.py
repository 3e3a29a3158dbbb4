"""Sums from the moments of groups against sums over values, in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream, units_of_codes
from degarble.profile.code_sums import ends_of
from degarble.profile.group_sums import group_sums, sums_of_codes
from degarble.profile.kernels import Kernels, compiled
from degarble.profile.scratch import Scratch
from degarble.profile.value_sums import (
    Place,
    ValueSums,
    moments_of,
    stats_of_parts,
    sums_of_groups,
    sums_of_values,
)
from degarble.profile.values import value_stats

SIZE = 32


def group_values(
    seed: int, num_bits: int, *, zero: str = "middle", outputs: int = 4, groups: int = 6
) -> tuple[Array, Array, Array]:
    """Codes [outputs, groups, size], scales and zero points [outputs, groups]."""
    rng = np.random.default_rng(seed)
    top = (1 << num_bits) - 1
    codes = rng.integers(0, top + 1, (outputs, groups, SIZE), np.uint8)
    codes[rng.random((outputs, groups)) < 0.5] //= 2  # groups without the highest code
    scales = (rng.lognormal(-4, 1, (outputs, groups)) * rng.choice([1, 1, -1], (outputs, groups))).astype(np.float32)
    middles = {
        "middle": np.full((outputs, groups), (top + 1) / 2),
        "whole": rng.integers(0, top + 1, (outputs, groups)),
        "between": rng.uniform(-3, top + 3, (outputs, groups)),
        "far": rng.uniform(1e4, 1e6, (outputs, groups)),
    }
    return codes, scales, middles[zero].astype(np.float32)


def from_groups(codes: Array, scales: Array, zeros: Array, num_bits: int, place: Place) -> ValueSums | None:
    stream = CodeStream(units_of_codes(codes.reshape(len(codes), -1), num_bits), num_bits, False)
    sums = group_sums(stream, Scratch().indices(stream), codes.shape[2], Scratch())
    assert sums is not None
    moments = moments_of(stream, sums, scales, zeros)
    return None if moments is None else sums_of_groups(stream, moments, scales, zeros, codes.shape[2], place)


def values_of(codes: Array, scales: Array, zeros: Array) -> Array:
    """[outputs, in] float32 as formats give them."""
    with np.errstate(over="ignore", invalid="ignore"):
        values = (codes.astype(np.float32) - zeros[..., None]) * scales[..., None]
    return np.asarray(values.reshape(len(codes), -1))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 9999),
    num_bits=st.sampled_from([2, 3, 4, 8]),
    zero=st.sampled_from(["middle", "whole", "between", "far"]),
)
def test_moments_of_groups_give_the_sums_of_values(seed: int, num_bits: int, zero: str) -> None:
    codes, scales, zeros = group_values(seed, num_bits, zero=zero)
    values, place = values_of(codes, scales, zeros), Place(0, len(codes))
    found = from_groups(codes, scales, zeros, num_bits, place)
    assert found is not None
    wide = values.astype(np.float64)
    np.testing.assert_allclose(found.squares, (wide * wide).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(found.totals, wide.sum(axis=1), rtol=1e-6, atol=1e-6 * np.abs(wide).sum(axis=1).max())
    assert found.top == float(np.abs(values).max())
    np.testing.assert_array_equal(found.some, sums_of_values(values, place).some)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9999),
    num_bits=st.integers(2, 8),
    zero=st.sampled_from(["middle", "whole", "between", "far"]),
    is_one=st.booleans(),
    bad=st.sampled_from([None, None, None, 0.0, np.nan, np.inf, 3e38]),
    ends=st.sampled_from(["all", "none", "one"]),
)
def test_one_loop_over_groups_gives_what_numpy_gives(
    seed: int, num_bits: int, zero: str, is_one: bool, bad: float | None, ends: str
) -> None:
    """To the last bit, compiled or not, and None for the same values."""
    codes, scales, zeros = group_values(seed, num_bits, zero=zero)
    top = (1 << num_bits) - 1
    codes = codes if ends == "all" else codes.clip(1, top - (ends == "none"))
    if bad is not None:
        scales[seed % len(scales), 1] = bad
    around = zeros[:1, :1] if is_one else zeros
    stream = CodeStream(units_of_codes(codes.reshape(len(codes), -1), num_bits), num_bits, False)
    sums = sums_of_codes(codes, num_bits)
    moments = moments_of(stream, sums, scales, around)
    with np.errstate(over="ignore", invalid="ignore"):
        found = [kernels.facts(stream, sums, scales, around) for kernels in (Kernels(), compiled()) if kernels]
    assert all((one is None) == (moments is None) for one in found)
    if moments is not None:
        with np.printoptions(floatmode="unique", threshold=10**6):
            assert all(repr(one) == repr((ends_of(sums), moments)) for one in found)


def test_an_output_at_its_zero_point_is_all_zero() -> None:
    codes, scales, zeros = group_values(0, 4, zero="whole")
    codes[2] = zeros[2, :, None]
    found = from_groups(codes, scales, zeros, 4, Place(0, len(codes)))
    assert found is not None and found.squares[2] == found.totals[2] == 0 < found.squares[1]


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e38])
def test_values_that_are_no_finite_float32_are_left_to_the_slow_way(bad: float) -> None:
    codes, scales, zeros = group_values(0, 4)
    scales[1, 2] = bad
    assert from_groups(codes, scales, zeros, 4, Place(0, len(codes))) is None
    values = values_of(codes, scales, zeros)
    (slow,), found = value_stats(values[None]), stats_of_parts([sums_of_values(values, Place(0, len(values)))])
    assert found.nonfinite == slow.nonfinite > 0
    assert found.absmax == slow.absmax
    assert found.rms == pytest.approx(slow.rms, rel=1e-9)
    assert found.log_row_rms == pytest.approx(slow.log_row_rms)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), cuts=st.lists(st.integers(1, 39), max_size=4, unique=True))
def test_parts_give_what_the_whole_gives(seed: int, cuts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((40, 130), np.float32) * np.float32(0.02)
    edges = [0, *sorted(cuts), 40]
    parts = [sums_of_values(values[start:stop], Place(start, 40)) for start, stop in pairwise(edges)]
    found, (slow,) = stats_of_parts(parts), value_stats(values[None])
    assert (found.absmax, found.median_abs, found.nonfinite) == (slow.absmax, slow.median_abs, 0)
    assert found.rms == pytest.approx(slow.rms, rel=1e-6) and found.std == pytest.approx(slow.std, rel=1e-6)
    assert found.log_row_rms == pytest.approx(slow.log_row_rms, abs=1e-6)
