"""The meta line's rules on the numeric cases of the research."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from degarble.kv import LAYOUT_RULES, lint
from degarble.trace_faults.interface import NotApplicable, trace_faults
from tests.trace.simulator import FLAVOURS
from tests.trace.test_replay import META, rules_of, told
from tests.trace.traces import healthy, verdict_of, write

NHD = {"axes": ["num_blocks", "block_size", "num_kv_heads", "head_dim"]}


def group(**fields: Any) -> dict[str, Any]:
    return META | {
        "block_size": 16,
        "num_heads": 16,
        "num_kv_heads": 8,
        "head_dim": 128,
        "groups": [{"g": 0, **fields}],
    }


@pytest.mark.parametrize(
    ("fields", "rules"),
    [
        ({**NHD, "shape": [16, 16, 8, 128], "strides": [16384, 1024, 128, 1]}, []),
        ({**NHD, "shape": [16, 16, 8, 128], "strides": [16640, 1024, 128, 1]}, []),
        ({**NHD, "shape": [16, 16, 8, 128], "strides": [16000, 1024, 128, 1]}, ["KVC601"]),
        ({**NHD, "shape": [16, 16, 8, 128], "strides": [16384, 128, 2048, 1]}, []),
        ({**NHD, "layout": "NHD", "shape": [16, 16, 8, 128], "strides": [16384, 128, 2048, 1]}, ["KVC601"]),
        ({**NHD, "layout": "HND", "shape": [16, 16, 8, 128], "strides": [16384, 128, 2048, 1]}, []),
        (
            {
                "axes": ["num_kv_heads", "num_blocks", "block_size", "head_dim"],
                "shape": [8, 16, 16, 128],
                "strides": [128 * 16 * 16, 2048, 128, 1],
            },
            [],
        ),
        ({**NHD, "shape": [16, 16, 4, 128]}, ["KVC614"]),
        ({"shape": [16, 16, 8, 128]}, []),
        ({"shape": [16, 16, 2, 1024]}, []),
    ],
)
def test_strides_and_shapes(fields: dict[str, Any], rules: list[str], tmp_path: Path) -> None:
    assert [rule for rule, _ in rules_of(told(tmp_path, meta=group(**fields)))] == rules


def test_two_kv_heads_look_like_the_kv_axis(tmp_path: Path) -> None:
    """Research KC02: [NB, 16, 2, 256] with two heads of 128 reads two ways."""
    meta = group(shape=[16, 16, 2, 256]) | {"num_kv_heads": 2, "num_heads": 4}
    verdict = told(tmp_path, meta=meta)
    assert rules_of(verdict) == [("KVC612", 0)] and verdict.violations[0].is_info


@pytest.mark.parametrize(("stride", "bad"), [(1_039_680, 2066), (1_002_240, 2143)])
def test_first_block_beyond_32_bits(stride: int, bad: int, tmp_path: Path) -> None:
    """Research KC05: strides in elements of one byte, and the first bad block."""
    fields = {
        "axes": ["num_blocks", "latent"],
        "shape": [4096, 576],
        "strides": [stride, 1],
        "itemsize": 1,
        "kind": "full",
    }
    verdict = told(tmp_path, meta=group(num_blocks=4096, **fields))
    assert rules_of(verdict) == [("KVC619", 0)] and verdict.violations[0].block == bad
    assert not rules_of(told(tmp_path, meta=group(num_blocks=4096, **fields, index_bits=64)))
    small = fields | {"shape": [2000, 576]}
    assert not rules_of(told(tmp_path, meta=group(num_blocks=2000, **small)))


@pytest.mark.parametrize(
    ("heads", "tp", "is_right"), [(2, 4, True), (8, 16, True), (4, 8, True), (4, 3, False), (2, 3, False)]
)
def test_head_map(heads: int, tp: int, is_right: bool, tmp_path: Path) -> None:
    meta = META | {"num_kv_heads": heads, "num_heads": 48, "tp": tp}
    assert (not rules_of(told(tmp_path, meta=meta))) is is_right


def test_owners(tmp_path: Path) -> None:
    """Research KC27: owner [0, 1, 1, 0]."""
    layers = {"layers": [0, 1, 2, 3]}
    assert not rules_of(told(tmp_path, meta=group(**layers, owner=[0, 1, 1, 0])))
    assert rules_of(told(tmp_path, meta=group(**layers, owner=[0, 1, 1, 2]))) == [("KVC629", 0)]
    assert rules_of(told(tmp_path, meta=group(**layers, owner=[0, 1, 1, 9]))) == [("KVC629", 0)]


@pytest.mark.parametrize(
    ("fields", "is_right"),
    [
        ({"shape": [16, 64, 576]}, True),
        ({"shape": [16, 64, 656], "itemsize": 1}, True),
        ({"shape": [16, 64, 656], "itemsize": 2}, False),
        ({"shape": [16, 64, 512]}, False),
        ({"shape": [16, 64, 576], "parts": ["k", "v"]}, False),
    ],
)
def test_latent_records(fields: dict[str, Any], is_right: bool, tmp_path: Path) -> None:
    latent = {"kind": "mla", "block_size": 64, "axes": ["num_blocks", "block_size", "latent"], **fields}
    meta = group(**latent) | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert rules_of(told(tmp_path, meta=meta)) == ([] if is_right else [("KVC631", 0)])


@pytest.mark.parametrize("rule", LAYOUT_RULES)
def test_one_judge_for_traces_and_declarations(rule: str, tmp_path: Path) -> None:
    """A fault of the meta line breaks the same rules by `kv lint` of the line as by a replay of the trace."""
    planted = 0
    for flavour in ("plain", "odd-size", "forks"):
        for fault in trace_faults():
            if fault.rule != rule:
                continue
            try:
                events, place = fault.plant(healthy(flavour), 1)
            except NotApplicable:
                continue
            if place.line != 0:
                continue
            planted += 1
            replayed = {one.rule for one in verdict_of(tmp_path / "t.jsonl", events[:1]).violations}
            linted = {one.rule for one in lint(write(tmp_path / "m.jsonl", events[:1])).findings}
            assert rule in replayed and linted & set(LAYOUT_RULES) == replayed, (flavour, fault.name)
    assert planted


def test_healthy_meta_lines_are_healthy_declarations(tmp_path: Path) -> None:
    for flavour in FLAVOURS:
        report = lint(write(tmp_path / "m.jsonl", healthy(flavour)[:1]))
        assert not report.findings and not report.failure, (flavour, report.findings)


@pytest.mark.parametrize(
    "fields",
    [
        {"shape": [], "axes": []},
        {"shape": [0, 16], "strides": [1, 1]},
        {"shape": [1 << 70] * 4, "itemsize": 0},
        {"axes": ["num_blocks"] * 4, "shape": [1, 2, 3, 4], "strides": [-1, -2, -3, -4]},
        {"layers": [0, 0, 0], "owner": [5, 5]},
        {"layers": [], "owner": [1]},
        {"kind": "mla", "shape": [1], "axes": ["latent", "kv", "head_dim"], "parts": []},
        {"kernel_block_size": 0, "block_size": -3, "num_blocks": 0, "index_bits": -7, "shape": [4, 4]},
        {"kernel_block_size": -16, "shape": [4, 4], "axes": ["num_blocks", "block_size"], "index_bits": 1},
    ],
)
def test_numbers_of_no_tensor_crash_nothing(fields: dict[str, Any], tmp_path: Path) -> None:
    for more in ({}, {"tp": 0}, {"num_kv_heads": 0, "tp": -1}, {"num_kv_heads": 1 << 40, "num_heads": 1 << 41}):
        told(tmp_path, meta=group(**fields) | more)
