"""Which modules are drawn beside a finding's, and that odd profiles are survived."""

from __future__ import annotations

import math
from typing import Any

import pytest

from degarble.finding import Location
from degarble.report.plot_data import MEASURES, Peers, ratio
from degarble.report.plots import evidence, strip
from tests.report.samples import finding, layered


def at(module: str, **facts: Any) -> Any:
    """A finding at a module."""
    return finding(location=Location(module=module), **facts)


def test_peers_differ_in_their_layer_only() -> None:
    names = [
        "model.layers.0.mlp.up",
        "model.layers.10.mlp.up",
        "model.layers.2.mlp.up",
        "model.layers.2.mlp.down",
        "head",
    ]
    peers = Peers({name: {"layer": int(name.split(".")[2])} if "." in name else {"layer": None} for name in names})
    group = peers.group(at("model.layers.2.mlp.up"))
    assert group is not None
    assert [peer.layer for peer in group.peers] == [0, 2, 10] and group.marked == {2}
    assert peers.group(at("head")) is None and peers.group(at("elsewhere")) is None
    assert peers.group(finding(location=Location(file="config.json"))) is None


def test_an_expert_is_compared_with_the_same_expert() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{expert}.up" for layer in (0, 1) for expert in (0, 1)]
    group = Peers({name: {"layer": int(name[13])} for name in names}).group(at(names[3]))
    assert group is not None and [peer.name for peer in group.peers] == [names[1], names[3]]


def test_all_places_of_a_folded_finding_are_marked() -> None:
    profile = {f"blk.{n}.ffn_up": {"layer": n} for n in range(5)}
    places = tuple(Location(tensor=f"blk.{n}.ffn_up.weight", module=f"blk.{n}.ffn_up") for n in (1, 3))
    group = Peers(profile).group(finding(location=places[0], places=places))
    assert group is not None and group.marked == {1, 3} and len(group.others) == 3


def test_the_usual_value_leaves_the_finding_out() -> None:
    report = layered()
    group = Peers(report.profile or {}).group(report.causes[0].finding)
    assert group is not None
    usual, here = group.usual(MEASURES["median scale"]), MEASURES["median scale"](group.this.row)
    assert usual is not None and here is not None and 16 < here / usual < 64


@pytest.mark.parametrize(
    "row",
    [
        None,
        3,
        {},
        {"layer": "x"},
        {"layer": 1, "values": None},
        {"layer": 1, "values": {"absmax": math.nan, "rms": math.inf}, "scales": {"log2_median": 1e9}},
        {"layer": 1, "values": {"absmax": True, "rms": -1.0}, "codes": {"histogram": [math.nan, 1]}},
        {"layer": 1, "codes": {"histogram": [0, 0]}},
        {"layer": 10**9},
        {"layer": 1, "values": {"absmax": 1e299, "rms": 5e-324}, "codes": {"histogram": [1e299] * 256}},
    ],
)
def test_odd_profiles(row: Any) -> None:
    peers = Peers({"a.0.b": {"layer": 0, "values": {"absmax": 1.0, "rms": 1.0}}, "a.1.b": row})
    for name in ("a.0.b", "a.1.b"):
        group = peers.group(at(name))
        if group is not None:
            assert "nan" not in evidence(group, "f1")


def test_a_strip_needs_two_layers() -> None:
    report = layered(21)
    profile = {name: row for name, row in (report.profile or {}).items() if ".20." in name}
    group = Peers(profile).group(report.causes[0].finding)
    assert group is not None and strip(group, "largest value", "f1") == ""


@pytest.mark.parametrize(("value", "usual", "expected"), [(4.0, 2.0, 2.0), (1.0, 0.0, None), (None, 1.0, None)])
def test_ratio(value: float | None, usual: float | None, expected: float | None) -> None:
    assert ratio(value, usual) == expected
