"""Layouts against numpy's own strides, the cases computed in research, and the catalogue's own formulas."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.errors import LayoutMismatch
from degarble.kvcache.geometry import Geometry, kv_head_of_query, kv_heads_of_rank
from degarble.kvcache.layout import CATALOGUE, KVLayout, element_offset, find_layout

GEOMETRY = Geometry(num_blocks=5, block_size=16, num_kv_heads=4, head_dim=24, latent=40, num_layers=3)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_strides_are_those_of_a_dense_array(layout: KVLayout) -> None:
    shape = layout.shape(GEOMETRY)
    dense = np.empty(shape, np.int16)
    assert layout.strides(GEOMETRY) == tuple(step // 2 for step in dense.strides)
    for axis, stride in zip(layout.axes, layout.strides(GEOMETRY), strict=True):
        sizes = {**GEOMETRY.sizes(), "1": 1}
        assert np.prod([sizes[atom] for atom in layout.formula(axis).split("·")]) == stride


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_offsets_are_a_bijection(layout: KVLayout) -> None:
    """Every element has one offset and every offset below the size one element."""
    small = Geometry(num_blocks=2, block_size=3, num_kv_heads=2, head_dim=8, latent=5, num_layers=2, x=4)
    sizes = small.sizes()
    strides = layout.atom_strides(small)
    grid = np.indices([sizes[atom] for atom in layout.atoms]).reshape(len(layout.atoms), -1)
    offsets = np.array([strides[atom] for atom in layout.atoms]) @ grid
    assert sorted(offsets.tolist()) == list(range(grid.shape[1]))


def test_case_of_research() -> None:
    """bs 16, H 8, D 128, element (2, 3, 5, 7): computed by hand."""
    geometry = Geometry(num_blocks=4, block_size=16, num_kv_heads=8, head_dim=128)
    at = {"num_blocks": 2, "block_size": 3, "num_kv_heads": 5, "head_dim": 7}
    assert element_offset(find_layout("NHD").atom_strides(geometry), at) == 36487
    assert element_offset(find_layout("hnd").atom_strides(geometry), at) == 43399
    mla = Geometry(num_blocks=9, block_size=64, latent=576)
    latent = {"num_blocks": 3, "block_size": 5, "latent": 514}
    assert element_offset(find_layout("MLA").atom_strides(mla), latent) == 113986


def test_legacy_k_splits_the_head() -> None:
    """[NB, H, D/x, bs, x]: b·H·D·bs + h·D·bs + (d//x)·bs·x + t·x + d%x."""
    geometry = Geometry(num_blocks=4, block_size=16, num_kv_heads=8, head_dim=128, x=8)
    at = {"num_blocks": 2, "block_size": 3, "num_kv_heads": 5, "head_dim": 77}
    expected = 2 * 8 * 128 * 16 + 5 * 128 * 16 + 77 // 8 * 16 * 8 + 3 * 8 + 77 % 8
    assert element_offset(find_layout("legacy-k").atom_strides(geometry), at, x=8) == expected


def test_origin_formula_is_head_major_only() -> None:
    """head_dim·block_size·num_blocks is the first stride of exactly one layout of four axes."""
    geometry = Geometry(num_blocks=7, block_size=16, num_kv_heads=5, head_dim=24)
    claimed = 24 * 16 * 7
    four = [
        layout for layout in CATALOGUE if set(layout.atoms) == {"num_blocks", "block_size", "num_kv_heads", "head_dim"}
    ]
    assert [layout.name for layout in four if layout.strides(geometry)[0] == claimed] == ["head-major"]
    assert find_layout("head-major").formula("num_kv_heads") == "num_blocks·block_size·head_dim"


def test_fused_content_puts_v_after_k() -> None:
    layout = find_layout("NHD-fused")
    strides = layout.atom_strides(GEOMETRY)
    assert (strides["kv"], strides["num_kv_heads"], layout.shape(GEOMETRY)[-1]) == (24, 48, 48)
    assert layout.split_strides(GEOMETRY, layout.strides(GEOMETRY)) == strides


def test_a_padded_page() -> None:
    layout = find_layout("HND")
    assert layout.strides(GEOMETRY, page_stride=2048)[0] == 2048
    assert find_layout("head-major").strides(GEOMETRY, page_stride=500)[0] == 2500
    with pytest.raises(LayoutMismatch, match="a page needs 1536 elements, page_stride is 1535"):
        layout.strides(GEOMETRY, page_stride=1535)


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        (["num_blocks", "block_size", "heads"], "no axis is called 'heads'"),
        (["num_blocks", "block_size", "block_size"], "named twice"),
        (["num_blocks", "head_dim"], "must be among"),
        ("NDH", "no layout is called 'NDH'"),
    ],
)
def test_refused(axes: str | list[str], said: str) -> None:
    with pytest.raises(LayoutMismatch, match=said):
        find_layout(axes)


def test_any_order_may_be_declared() -> None:
    assert find_layout(["block_size", "num_blocks", "head_dim"]).name == "declared"
    assert find_layout(("num_blocks", "block_size", "latent")).name == "MLA"
    assert not find_layout("MLA").has_kv_axis and find_layout("NHD-fused").has_kv_axis


def test_an_axis_without_size() -> None:
    plain = Geometry(num_blocks=2, block_size=4, num_kv_heads=1, head_dim=12)
    with pytest.raises(LayoutMismatch, match="axis latent the size 0"):
        find_layout("MLA").shape(plain)
    with pytest.raises(LayoutMismatch, match="axis head_dim/x the size 0"):
        find_layout("legacy-k").shape(plain)
    with pytest.raises(LayoutMismatch, match="num_blocks must be at least 1"):
        Geometry(num_blocks=0, block_size=1)


def test_heads_of_queries_and_ranks() -> None:
    assert [kv_head_of_query(q, 8, 2) for q in range(8)] == [0] * 4 + [1] * 4
    assert [list(kv_heads_of_rank(r, 4, 2)) for r in range(4)] == [[0], [0], [1], [1]]
    assert [list(kv_heads_of_rank(r, 2, 8)) for r in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert all(list(kv_heads_of_rank(r, 16, 8)) == [r // 2] for r in range(16))
    for call in (
        lambda: kv_heads_of_rank(0, 3, 8),
        lambda: kv_heads_of_rank(0, 12, 8),
        lambda: kv_head_of_query(0, 9, 2),
    ):
        with pytest.raises(LayoutMismatch):
            call()
