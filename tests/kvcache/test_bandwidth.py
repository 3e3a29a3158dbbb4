"""Traffic of an access, counted against numbers worked out by hand."""

from __future__ import annotations

import pytest

from degarble.kvcache.bandwidth import Access, traffic
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, KVLayout, find_layout

SIZE = Geometry(num_blocks=8, block_size=16, num_kv_heads=8, head_dim=128, latent=576, num_layers=2)


@pytest.mark.parametrize("layout", CATALOGUE, ids=lambda layout: layout.name)
def test_aligned_heads_waste_nothing(layout: KVLayout) -> None:
    """256 bytes of one head are eight sectors in every layout, except where lanes lie apart."""
    moved = traffic(layout, SIZE, 2, Access(num_tokens=160))
    expected = 160 * (576 if "latent" in layout.atoms else 128) * 2
    assert moved.useful_bytes == expected
    assert moved.efficiency == 1.0


def test_a_group_that_does_not_share() -> None:
    """B·G·L·d moved for B·L·d: 1/G useful."""
    access = Access(num_tokens=64, group_size=4, is_group_shared=False)
    assert traffic(find_layout("NHD"), SIZE, 2, access).efficiency == 0.25


@pytest.mark.parametrize(("num_tokens", "expected"), [(25, 25 / 32), (16, 1.0), (1, 1 / 16), (100, 100 / 112)])
def test_whole_blocks(num_tokens: int, expected: float) -> None:
    """25 tokens in blocks of 16: 32 rows, 78 % useful, which is one way to the origin's number."""
    assert (
        traffic(find_layout("HND"), SIZE, 2, Access(num_tokens=num_tokens, is_whole_block=True)).efficiency == expected
    )


def test_odd_heads_depend_on_the_layout() -> None:
    """40 bytes a row: NHD touches two sectors a row (64 bytes), HND reads one run of 640."""
    small = Geometry(num_blocks=4, block_size=16, num_kv_heads=8, head_dim=20)
    nhd = traffic(find_layout("NHD"), small, 2, Access(num_tokens=16))
    hnd = traffic(find_layout("HND"), small, 2, Access(num_tokens=16))
    assert (nhd.fetched_bytes, hnd.fetched_bytes) == (16 * 64, 640)


def test_v_by_lanes_wastes_a_short_last_block() -> None:
    """legacy V: a token's lanes lie block_size apart, so one token fetches a sector a lane."""
    moved = traffic(find_layout("legacy-v"), SIZE, 2, Access(num_tokens=1))
    assert moved.fetched_bytes == 128 * 32 and moved.useful_bytes == 256


def test_padded_pages_change_nothing_inside() -> None:
    plain = traffic(find_layout("NHD"), SIZE, 2, Access(num_tokens=33))
    assert plain == traffic(find_layout("NHD"), SIZE, 2, Access(num_tokens=33), page_stride=40_000)
