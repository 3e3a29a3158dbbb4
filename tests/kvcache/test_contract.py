"""Tensors that keep or break their declared layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from degarble.errors import LayoutMismatch
from degarble.kvcache.contract import index_violations, validate, violations
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, KVLayout, find_layout
from degarble.kvcache.tensor_facts import TensorFacts, is_contiguous

GEOMETRY = Geometry(num_blocks=6, block_size=16, num_kv_heads=4, head_dim=32, latent=48, num_layers=2)


def facts(shape: tuple[int, ...], strides: tuple[int, ...], **more: Any) -> TensorFacts:
    return TensorFacts(shape=shape, strides=strides, itemsize=2, **more)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_a_dense_tensor_keeps_its_contract(layout: KVLayout) -> None:
    found = validate(layout, GEOMETRY, np.zeros(layout.shape(GEOMETRY), np.float16), dtype="float16", index_bits=32)
    assert is_contiguous(found.shape, found.strides)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_a_padded_page_is_legal_and_a_short_one_is_not(layout: KVLayout) -> None:
    shape, dense = layout.shape(GEOMETRY), layout.atom_strides(GEOMETRY)["num_blocks"]
    padded = facts(shape, layout.strides(GEOMETRY, page_stride=dense + 64))
    assert not list(violations(layout, GEOMETRY, padded)) and not is_contiguous(padded.shape, padded.strides)
    at = next(place for place, axis in enumerate(layout.axes) if "num_blocks" in axis)
    short = list(layout.strides(GEOMETRY))
    short[at] -= 1
    (found,) = violations(layout, GEOMETRY, facts(shape, tuple(short)))
    assert found.rule == "KVC601" and "two coordinates share one element" in found.message


def test_both_formulas_are_written_out() -> None:
    """The stride of head-major storage in a tensor declared as NHD, which is the origin's claim."""
    nhd = find_layout("NHD")
    with pytest.raises(LayoutMismatch) as caught:
        validate(nhd, GEOMETRY, facts(nhd.shape(GEOMETRY), (1024, 128, 32, 1)))
    text = str(caught.value)
    assert "stride[num_blocks] = block_size·num_kv_heads·head_dim = 16·4·32 = 2048 by NHD, the tensor has 1024" in text


def test_a_foreign_formula_is_named() -> None:
    nhd, hnd = find_layout("NHD"), find_layout("HND")
    as_hnd = facts(nhd.shape(GEOMETRY), (2048, 32, 512, 1))
    (found,) = violations(nhd, GEOMETRY, as_hnd)
    assert "stride[num_kv_heads] = head_dim = 32 = 32 by NHD, the tensor has 512" in found.message
    assert "it is block_size·head_dim, the formula of HND" in found.message
    assert list(violations(hnd, GEOMETRY, facts(hnd.shape(GEOMETRY), (2048, 512, 32, 1)))) == []


def test_padding_inside_a_page_is_no_padding() -> None:
    (found,) = violations(find_layout("NHD"), GEOMETRY, facts((6, 16, 4, 32), (4096, 160, 32, 1)))
    assert found.measured == {"stride": 160, "axis": "block_size"}


def test_a_padded_page_must_carry_the_axis_outside_it() -> None:
    layout = find_layout("head-major")
    (found,) = violations(layout, GEOMETRY, facts((4, 6, 16, 32), (3072, 600, 32, 1)))
    assert "must be at least 6·600 = 3600" in found.message


def test_axes_of_size_one_have_any_stride() -> None:
    one = Geometry(num_blocks=6, block_size=16, num_kv_heads=1, head_dim=32)
    assert not list(violations(find_layout("NHD"), one, facts((6, 16, 1, 32), (512, 32, 77, 1))))


def test_shape_dtype_and_storage() -> None:
    nhd = find_layout("NHD")
    with pytest.raises(LayoutMismatch, match=r"num_blocks=6, block_size=16.*the tensor \[6, 4, 16, 32\]"):
        validate(nhd, GEOMETRY, np.zeros((6, 4, 16, 32), np.float16))
    with pytest.raises(LayoutMismatch, match="declared bfloat16, the tensor has float16"):
        validate(nhd, GEOMETRY, np.zeros((6, 16, 4, 32), np.float16), dtype="bfloat16")
    (found,) = violations(nhd, GEOMETRY, facts((6, 16, 4, 32), (2048, 128, 32, 1), offset=1, storage_elements=12288))
    assert found.key == "offset"
    assert not list(violations(nhd, GEOMETRY, facts((6, 16, 4, 32), (2048, 128, 32, 1), storage_elements=12288)))


@pytest.mark.parametrize(
    ("page", "itemsize", "first"),
    [(1_039_680, 1, 2066), (1_002_240, 1, 2143), (16 * 8 * 128 * 2, 1, 65536)],
)
def test_first_bad_block_of_published_pools(page: int, itemsize: int, first: int) -> None:
    """vllm-xpu-kernels#445, vllm#52109, vllm#50427."""
    geometry = Geometry(num_blocks=first + 10, block_size=1, num_kv_heads=1, head_dim=page)
    tensor = TensorFacts(shape=(first + 10, 1, 1, page), strides=(page, page, page, 1), itemsize=itemsize)
    found = list(index_violations(find_layout("NHD"), geometry, tensor, 32))
    assert {one.measured["first_bad_block"] for one in found} == {first}
    assert not list(index_violations(find_layout("NHD"), geometry, tensor, 64))


def test_bytes_overflow_before_elements() -> None:
    """2^31 bytes are 2^30 elements of two bytes: block 2^20 of 1024 elements is the first past them."""
    for num_blocks, expected in ((2**20, []), (2**20 + 1, [("bytes", 2**20)])):
        geometry = Geometry(num_blocks=num_blocks, block_size=16, num_kv_heads=1, head_dim=64)
        tensor = TensorFacts(shape=(num_blocks, 16, 1, 64), strides=(1024, 64, 64, 1), itemsize=2)
        found = index_violations(find_layout("NHD"), geometry, tensor, 32)
        assert [(one.measured["unit"], one.measured["first_bad_block"]) for one in found] == expected


def test_the_last_block_may_overflow_in_its_middle() -> None:
    """No block begins past 2^31, but rows of the last one lie there."""
    page = 3 * 2**29
    geometry = Geometry(num_blocks=2, block_size=1, num_kv_heads=1, head_dim=page)
    tensor = TensorFacts(shape=(2, 1, 1, page), strides=(page, page, page, 1), itemsize=1)
    (found, _) = index_violations(find_layout("NHD"), geometry, tensor, 32)
    assert found.measured["first_bad_block"] == 1


def test_head_major_index_by_block() -> None:
    """The block stride is small where heads are outside; the rows of the last heads overflow in every block."""
    geometry = Geometry(num_blocks=2**17, block_size=16, num_kv_heads=16, head_dim=128)
    layout = find_layout("head-major")
    tensor = facts(layout.shape(geometry), layout.strides(geometry))
    found = list(index_violations(layout, geometry, tensor, 32))
    assert [one.measured["first_bad_block"] for one in found] == [0, 0]


def test_facts_of_strange_tensors() -> None:
    view = np.zeros((4, 6), np.float32)[::2, ::-1]
    assert TensorFacts.of(view).strides == (12, -1)
    packed = np.zeros(2, np.dtype([("a", "u1"), ("b", "<u2")]))
    with pytest.raises(LayoutMismatch, match="no multiples of 2"):
        TensorFacts.of(packed["b"])
    with pytest.raises(LayoutMismatch, match="differ in length"):
        TensorFacts(shape=(1, 2), strides=(1,), itemsize=2)
    with pytest.raises(LayoutMismatch, match="is no tensor"):
        TensorFacts(shape=(1,), strides=(1,), itemsize=0)
