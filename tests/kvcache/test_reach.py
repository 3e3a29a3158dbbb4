"""How far an index reaches, against enumeration of every element."""

from __future__ import annotations

from itertools import product

import pytest

from degarble.kvcache.reach import beyond


@pytest.mark.parametrize("shape", [(5, 3, 2), (1, 7), (12, 1, 4), (3,)])
@pytest.mark.parametrize("itemsize", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 5])
def test_against_every_element(shape: tuple[int, ...], itemsize: int, padding: int) -> None:
    dense = [1] * len(shape)
    for at in range(len(shape) - 2, -1, -1):
        dense[at] = dense[at + 1] * shape[at + 1]
    strides = [dense[0] + padding, *dense[1:]]
    bits = 5
    limit = 1 << (bits - 1)
    found = {one.unit: one for one in beyond(shape, strides, 0, offset=1, itemsize=itemsize, index_bits=bits)}
    for unit, scale in (("elements", 1), ("bytes", itemsize)):
        past = [
            place[0]
            for place in product(*map(range, shape))
            if (1 + sum(a * b for a, b in zip(place, strides, strict=True))) * scale + scale - 1 >= limit
        ]
        assert (unit in found) == bool(past)
        if past:
            one = found[unit]
            assert one.first_touched == min(past) and one.first_bad_block is not None
            is_whole = one.first_bad_block * one.page_stride >= limit
            assert is_whole or one.first_bad_block == one.first_touched


def test_what_is_no_tensor_or_64_bit_is_not_judged() -> None:
    far = [1 << 40, 4]
    assert list(beyond(far, None, 0)) and not list(beyond(far, None, 0, index_bits=64))
    for shape, strides in (([], None), ([0, 1 << 40], None), (far, [1]), (far, [-1, 1])):
        assert not list(beyond(shape, strides, 0))
    (one, _) = beyond(far, [0, 1 << 40], 0)
    assert one.first_bad_block is None and one.page_stride == 0
