"""The known destructive steps and what survives them."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.repack.truncations import shift_in_field, shift_then_clip, signed_codes, truncations


def test_the_table_of_the_page() -> None:
    codes = signed_codes(4)
    assert codes.tolist() == list(range(-8, 8))
    assert shift_then_clip(codes, 4, 4).tolist() == [-8] * 8 + [0] + [7] * 7
    assert (codes.astype(np.int8) << 4).tolist() == [16 * code for code in range(-8, 8)]


def test_known_images() -> None:
    images = {(t.name, t.storage): t.image for t in truncations(4)}
    assert images["clip(w << 4, -8, 7)", "excess"] == {0, 8, 15}
    assert images["clip(w << 4, -8, 7)", "two's complement"] == {0, 7, 8}
    assert images["(w << 1) & 15", "excess"] == set(range(0, 16, 2))


@pytest.mark.parametrize("bits", [3, 4, 8])
def test_images_are_small_distinct_and_have_gaps(bits: int) -> None:
    found = truncations(bits)
    assert len({t.image for t in found}) == len(found) > 0
    for truncation in found:
        image = sorted(truncation.image)
        assert 2 <= len(image) <= (1 << bits) // 2 + 1 and image[0] >= 0 and image[-1] < 1 << bits
        assert image != list(range(image[0], image[-1] + 1))
        assert truncation.zero in truncation.image


def test_a_field_keeps_its_low_bits() -> None:
    assert shift_in_field(np.array([-8, -5, -1, 0, 3, 7]), 4, 1).tolist() == [0, 6, -2, 0, 6, -2]
