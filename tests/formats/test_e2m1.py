"""E2M1 codes: packing, rounding, and compressed-tensors' helpers as oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from degarble.formats import e2m1


@settings(deadline=None)
@given(arrays(np.uint8, array_shapes(min_dims=1, max_dims=3, max_side=9), elements=st.integers(0, 255)))
def test_every_byte_survives(packed: np.ndarray) -> None:
    assert np.array_equal(e2m1.pack(e2m1.unpack(packed)), packed)


def test_low_nibble_comes_first() -> None:
    assert e2m1.unpack(np.array([0x21], np.uint8)).tolist() == [1, 2]


def test_every_value_has_its_code() -> None:
    assert e2m1.encode(e2m1.VALUES).tolist() == list(range(16))
    assert np.signbit(e2m1.VALUES[8]) and not np.signbit(e2m1.VALUES_WITHOUT_MINUS_ZERO[8])


@pytest.mark.parametrize(
    ("value", "nearest"),
    [(0.25, 0), (0.26, 0.5), (0.75, 1), (1.25, 1), (1.75, 2), (2.5, 2), (3.5, 4), (5, 4), (5.01, 6), (99, 6), (-5, -4)],
)
def test_ties_go_to_even_and_the_end_saturates(value: float, nearest: float) -> None:
    assert e2m1.VALUES[e2m1.encode(np.array([value], np.float32))][0] == nearest


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        e2m1.pack(np.zeros(3, np.uint8))
    with pytest.raises(ValueError, match=r"found 0\.\.16"):
        e2m1.pack(np.array([0, 16], np.uint8))
    with pytest.raises(ValueError, match="NaN"):
        e2m1.encode(np.array([np.nan], np.float32))


@pytest.mark.engine
@settings(deadline=None)
@given(arrays(np.float32, (4, 8), elements=st.floats(-8, 8, width=32)))
def test_compressed_tensors_agrees(values: np.ndarray) -> None:
    torch = pytest.importorskip("torch")
    helpers = pytest.importorskip("compressed_tensors.compressors.nvfp4.helpers")
    codes = e2m1.encode(values)
    tensor = torch.from_numpy(e2m1.VALUES[codes])
    packed = helpers.pack_fp4_to_uint8(tensor).numpy()
    assert np.array_equal(packed, e2m1.pack(codes))
    back = helpers.unpack_fp4_from_uint8(torch.from_numpy(packed.copy()), 4, 8, dtype=torch.float32).numpy()
    np.testing.assert_array_equal(back, e2m1.VALUES[codes])
