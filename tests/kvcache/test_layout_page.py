"""Every number of docs/explanation/kv-layouts.md that a program can compute is computed here and found on the page."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from degarble.kvcache.bandwidth import Access, traffic
from degarble.kvcache.geometry import Geometry
from degarble.kvcache.isolation import Isolation, isolation_cost
from degarble.kvcache.layout import CATALOGUE, find_layout

ROOT = Path(__file__).parents[2]
PAGE = " ".join((ROOT / "docs" / "explanation" / "kv-layouts.md").read_text().split())
FOUR = {"num_blocks", "block_size", "num_kv_heads", "head_dim"}


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("block_manager_benchmark", ROOT / "benchmarks" / "block_manager.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def efficiency(name: str, head_dim: int, access: Access, block_size: int = 16) -> float:
    size = Geometry(num_blocks=64, block_size=block_size, num_kv_heads=4, head_dim=head_dim)
    return traffic(find_layout(name), size, 2, access).efficiency


@pytest.mark.parametrize("name", ["NHD", "HND", "head-major"])
def test_strides_of_the_table(name: str) -> None:
    layout = find_layout(name)
    assert f"| {name} | {', '.join(layout.axes)} | " in PAGE and layout.formula(layout.axes[0]) in PAGE


def test_the_formula_of_the_post_mortem_is_right_for_one_layout_of_the_catalogue() -> None:
    size = Geometry(num_blocks=7, block_size=5, num_kv_heads=3, head_dim=11)
    wanted = 11 * 5 * 7
    right = [layout.name for layout in CATALOGUE if set(layout.atoms) == FOUR and layout.strides(size)[0] == wanted]
    assert right == ["head-major"]


def test_shares_of_bytes() -> None:
    for tokens, block_size in ((25, 16), (100, 128)):
        share = efficiency("NHD", 128, Access(num_tokens=tokens, is_whole_block=True), block_size)
        assert f"{share:.1%}".replace("%", " %") in PAGE and share == 25 / 32
    alone = efficiency("NHD", 128, Access(num_tokens=64, group_size=4, is_group_shared=False))
    assert alone == 0.25 and "25 % for a group of four" in PAGE
    assert {efficiency(name, 128, Access(num_tokens=64)) for name in ("NHD", "HND", "head-major")} == {1.0}
    narrow = {name: efficiency(name, 20, Access(num_tokens=64)) for name in ("NHD", "HND")}
    assert narrow == {"NHD": 0.625, "HND": 1.0} and "Heads of 20 (40 bytes): 62.5 % in NHD, 100 % in HND" in PAGE


@pytest.mark.parametrize("requested", [3072, pytest.param(6144, marks=pytest.mark.slow)])
def test_shares_of_damage(requested: int, benchmark: ModuleType) -> None:
    reused, apart = (benchmark.rounding(requested, is_reused) for is_reused in (True, False))
    damage = reused.split(",")[0].removeprefix("damage ")
    assert f"{damage} ({requested})" in PAGE, reused
    assert apart.startswith("damage 0.0 %") and apart.endswith("canary 100.0 %")
    if requested == 3072:
        assert f"{reused.partition('canary ')[2]} (3072)" in PAGE


def test_the_price_of_isolation() -> None:
    isolation = Isolation(control_tokens={1: "role"}, classes=frozenset({"role"}))
    cost = isolation_cost(isolation, [([1] + [2] * 6) * 9], 16)
    told = f"nine turns of seven tokens take {cost.num_blocks_isolated} blocks of 16 instead of {cost.num_blocks_plain}"
    assert told in PAGE, told
