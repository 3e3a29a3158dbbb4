"""Permuted views are healthy, strides of another order than the one named are not; the same by all three judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.errors import LayoutMismatch
from degarble.kv import lint
from degarble.kvcache.contract import validate
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.layout import CATALOGUE, find_layout
from degarble.kvcache.stored_order import stored_layouts, stored_orders
from tests.trace.traces import verdict_of, write

GEOMETRY = Geometry(num_blocks=6, block_size=16, num_kv_heads=4, head_dim=32)
NHD = ["num_blocks", "block_size", "num_kv_heads", "head_dim"]
LOGICAL = ["num_blocks", "num_kv_heads", "block_size", "kv*head_dim"]
"""Of vLLM 0.33: one layer's [B, H, N, C], K and V together in C."""
FIVE = ["num_blocks", "kv", "block_size", "num_kv_heads", "head_dim"]
EXTENT = {"num_blocks": 6, "block_size": 16, "num_kv_heads": 4, "head_dim": 32, "kv": 2, "kv*head_dim": 64}


def group(axes: list[str], stored: list[str], **fields: Any) -> dict[str, Any]:
    """A tensor with these axes whose memory has them in the order of `stored`, densely."""
    step, stride = 1, {}
    for axis in reversed(stored):
        stride[axis] = step
        step *= EXTENT[axis]
    told = {"axes": axes, "shape": [EXTENT[axis] for axis in axes], "strides": [stride[axis] for axis in axes]}
    return {"g": 0, "kind": "full", "itemsize": 2} | told | fields


def rules(tmp_path: Path, fields: dict[str, Any]) -> list[str]:
    """By `kv lint` and by a trace's first line, which must agree."""
    meta = {"ev": "meta", "n": 0, "t": 0, "schema": 1, "num_heads": 8, "num_kv_heads": 4, "head_dim": 32}
    events = [meta | {"block_size": 16, "num_blocks": 6, "groups": [fields]}]
    linted = sorted({one.rule for one in lint(write(tmp_path / "m.jsonl", events)).findings})
    assert linted == sorted({one.rule for one in verdict_of(tmp_path / "t.jsonl", events).violations})
    return linted


HND = [NHD[0], NHD[2], NHD[1], NHD[3]]
BNHC = [LOGICAL[0], LOGICAL[2], LOGICAL[1], LOGICAL[3]]
HBNC = [LOGICAL[1], LOGICAL[0], LOGICAL[2], LOGICAL[3]]
FIVE_HND = [FIVE[0], FIVE[1], FIVE[3], FIVE[2], FIVE[4]]


@pytest.mark.parametrize(
    ("axes", "stored", "said", "is_right"),
    [
        (NHD, HND, {}, True),
        (NHD, HND, {"layout": "HND"}, True),
        (NHD, HND, {"layout": "some engine"}, True),
        (NHD, HND, {"stride_order": [0, 2, 1, 3]}, True),
        (NHD, HND, {"layout": "NHD"}, False),
        (NHD, HND, {"stride_order": [0, 1, 2, 3]}, False),
        (NHD, HND, {"stride_order": [0, 2, 1, 1]}, False),
        (NHD, NHD, {"layout": "HND"}, False),
        (NHD, NHD, {"layout": "LBNHC"}, True),
        (NHD, ["num_kv_heads", "num_blocks", "block_size", "head_dim"], {"layout": "head_major"}, True),
        (NHD, HND, {"layout": "head-major"}, False),
        (NHD, ["num_blocks", "head_dim", "num_kv_heads", "block_size"], {}, False),
        (LOGICAL, BNHC, {}, True),
        (LOGICAL, BNHC, {"layout": "LBNHC"}, True),
        (LOGICAL, BNHC, {"layout": "NHD"}, True),
        (LOGICAL, BNHC, {"layout": "LBHNC"}, False),
        (LOGICAL, HBNC, {"layout": "LHBNC"}, True),
        (LOGICAL, HBNC, {"layout": "LBHNC"}, False),
        (FIVE, FIVE_HND, {}, True),
        (FIVE, FIVE_HND, {"layout": "HND"}, True),
        (FIVE, ["kv", *HND], {"layout": "HND"}, True),
        (FIVE, FIVE_HND, {"layout": "NHD"}, False),
        (FIVE, FIVE, {"layout": "NHD-flat-kv-first"}, False),
        (FIVE, FIVE, {"layout": "MLA"}, True),
        (FIVE, FIVE_HND, {"layout": "MLA"}, False),
    ],
)
def test_views(axes: list[str], stored: list[str], said: dict[str, Any], is_right: bool, tmp_path: Path) -> None:
    assert rules(tmp_path, group(axes, stored, **said)) == ([] if is_right else ["KVC601"])


def test_a_view_with_short_pages_still_overlaps(tmp_path: Path) -> None:
    short = group(NHD, HND)
    short["strides"][0] -= 32
    assert rules(tmp_path, short) == ["KVC601"]
    padded = group(NHD, HND)
    padded["strides"][0] += 64
    assert rules(tmp_path, padded) == []


def test_an_allocation_names_what_it_accepts() -> None:
    """A pool knows its kernels: without `stored` the permuted view is refused, and what a reader of NHD takes is shown."""
    nhd = find_layout("NHD")
    memory = np.arange(6 * 4 * 16 * 32, dtype=np.int32).reshape(6, 4, 16, 32)
    view = memory.transpose(0, 2, 1, 3)
    assert validate(nhd, GEOMETRY, view, stored=stored_layouts(nhd)).shape == (6, 16, 4, 32)
    assert validate(nhd, GEOMETRY, view, stored=stored_layouts(nhd, "HND"))
    for stored in ((), stored_layouts(nhd, "NHD")):
        with pytest.raises(
            LayoutMismatch, match="by NHD, the tensor has 512; it is block_size·head_dim, the formula of HND"
        ):
            validate(nhd, GEOMETRY, view, stored=stored)
    by_kernel = memory.reshape(-1)[2 * 2048 + 3 * 128 + 1 * 32]  # block 2, row 3, head 1 by the formula of NHD
    assert by_kernel != view[2, 3, 1, 0] == memory.reshape(-1)[2 * 2048 + 3 * 32 + 1 * 512]


def test_every_order_is_a_permutation() -> None:
    for layout in CATALOGUE:
        for named in (None, "HND", "NHD", "LBNHC", "head-major", "LLL", ""):
            orders = stored_orders(layout.axes, named)
            assert orders and all(sorted(one.axes) == sorted(layout.axes) for one in orders)
    assert [one.axes for one in stored_orders(["a"] * 3)] == [("a",) * 3]
    with pytest.raises(LayoutMismatch, match="no permutation of 2 axes"):
        stored_orders(["a", "b"], None, [0, 2])
