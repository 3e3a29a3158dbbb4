"""The shared arithmetic of integer formats."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from degarble.formats.affine import MIN_SCALE, dequantize, group_of, quantize


@given(st.integers(2, 8), st.integers(1, 40), st.integers(1, 48), st.booleans(), st.integers(0, 2**32 - 1))
def test_every_weight_is_within_half_a_step(bits: int, columns: int, group: int, symmetric: bool, seed: int) -> None:
    """Asymmetric zeros are rounded, which shifts a group by up to half a step more at its ends."""
    weight = np.random.default_rng(seed).normal(size=(3, columns)).astype(np.float32)
    codes, scales, zeros = quantize(weight, bits, group, symmetric=symmetric)
    assert scales.shape == zeros.shape == (3, -(-columns // group))
    index = group_of(columns, group)
    steps = np.abs(dequantize(codes, scales, zeros, index) - weight) / scales.astype(np.float32)[:, index]
    assert steps.max() <= 1.01 + 2 ** (bits - 9)
    if symmetric:
        assert set(zeros.ravel()) == {1 << (bits - 1)}


def test_a_group_of_zeros_keeps_a_normal_scale() -> None:
    codes, scales, zeros = quantize(np.zeros((2, 8), np.float32), 4, 8, symmetric=False)
    assert float(scales.min()) == MIN_SCALE
    assert not dequantize(codes, scales, zeros, group_of(8, 8)).any()


@pytest.mark.parametrize("index", [[0, 0, 0, 2], [-1, 0, 0, 0]])
def test_a_group_without_scale_is_refused(index: list[int]) -> None:
    """A negative index would silently take the last group."""
    with pytest.raises(ValueError, match="scales for 2 groups"):
        dequantize(np.zeros((1, 4), np.uint8), np.ones((1, 2)), np.zeros((1, 2), np.int32), np.array(index))


def test_no_group_size_means_one_group() -> None:
    assert group_of(5, None).tolist() == [0] * 5
    assert group_of(5, 2).tolist() == [0, 0, 1, 1, 2]
    assert group_of(0, None).size == 0
