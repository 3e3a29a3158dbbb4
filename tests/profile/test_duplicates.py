"""Equal tensors: a difference of one byte anywhere tells two of them apart, a shared beginning does not make them equal."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.checkpoint.interface import TensorInfo
from degarble.formats.in_memory import ArrayReader
from degarble.profile.duplicates import CHUNK_BYTES, LOOK_BYTES, LOOKS, is_equal

SIZE = 2 * CHUNK_BYTES + 777


@pytest.mark.parametrize(
    "at", [0, LOOK_BYTES, SIZE // LOOKS, SIZE // LOOKS + LOOK_BYTES, CHUNK_BYTES, 2 * CHUNK_BYTES, SIZE - 1]
)
def test_one_byte_anywhere_tells_two_tensors_apart(at: int) -> None:
    one = np.random.default_rng(0).integers(0, 256, SIZE, np.uint8)
    two = one.copy()
    left, right = (TensorInfo(name, "U8", (SIZE,), "file", 0, SIZE) for name in ("left", "right"))
    reader = ArrayReader({"left": one, "right": two})
    assert is_equal(left, right, reader)
    two[at] ^= 1
    assert not is_equal(left, right, reader)


def test_tensors_smaller_than_a_look_are_compared() -> None:
    left, right = (TensorInfo(name, "U8", (3,), "file", 0, 3) for name in ("left", "right"))
    arrays = {"left": np.array([1, 2, 3], np.uint8), "right": np.array([1, 2, 4], np.uint8)}
    assert not is_equal(left, right, ArrayReader(arrays))
    assert is_equal(left, left, ArrayReader(arrays))
