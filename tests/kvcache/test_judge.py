"""What `kv lint` says of declarations that are wrong in one way, and of files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.kv import lint
from degarble.report.interface import Report

HEALTHY = Path(__file__).parents[1] / "cases" / "kv" / "healthy.json"


def judged(tmp_path: Path, *edits: tuple[list[Any], Any], base: dict[str, Any] | None = None) -> Report:
    """Healthy, with values at paths replaced (`...` deletes)."""
    document = json.loads(HEALTHY.read_text()) if base is None else base
    for keys, value in edits:
        place = document
        for key in keys[:-1]:
            place = place[key]
        if value is ...:
            del place[keys[-1]]
        else:
            place[keys[-1]] = value
    path = tmp_path / "kv.json"
    path.write_text(json.dumps(document))
    return lint(path)


def the_finding(report: Report, rule: str) -> Any:
    assert [finding.rule for finding in report.findings] == [rule], [f.message for f in report.findings]
    return report.findings[0]


@pytest.mark.parametrize(
    ("rule", "keys", "value", "key", "said"),
    [
        ("KVC601", ["groups", 0, "strides", 0], 2000, "groups[0].strides", "two coordinates share one element"),
        ("KVC601", ["groups", 0, "layout"], "HND", "groups[0].strides", "the formula of NHD"),
        ("KVC601", ["groups", 0, "shape"], [64, 2, 16, 64], "groups[0].shape", "the tensor [64, 2, 16, 64]"),
        ("KVC601", ["groups", 0, "storage_elements"], 1000, "groups[0].offset", "do not fit a storage of 1000"),
        ("KVC614", ["head_map"], [[0, 1], [1, 2]], "head_map", "rank 1 holds the KV heads [1, 2], by the rule [2, 3]"),
        ("KVC614", ["head_map"], [[0, 1, 2, 3]], "head_map", "names 1 ranks, tp is 2"),
        ("KVC614", ["num_heads"], 15, "num_kv_heads", "cannot share 4 KV heads equally"),
        ("KVC619", ["groups", 0, "index_bits"], 16, "groups[0].index_bits", "block"),
        ("KVC629", ["groups", 0, "owner"], [0, 1, 1], "groups[0].owner", "3 owners for 4 layers"),
        ("KVC629", ["groups", 0, "owner"], [0, 2, 1, 3], "groups[0].owner", "which has none of its own"),
        ("KVC629", ["groups", 0, "writes"], [0, 1, 2, 3], "groups[0].writes", "layer 2 writes to the cache of layer 1"),
        ("KVC629", ["groups", 0, "writes"], [0, 1], "groups[0].writes", "layer 3 owns a cache and never writes"),
        ("KVC629", ["groups", 0, "pointers"], [1, 2, 3, 4], "groups[0].pointers", "another storage than its owner 1"),
    ],
)
def test_one_wrong_value(tmp_path: Path, rule: str, keys: list[Any], value: Any, key: str, said: str) -> None:
    report = judged(tmp_path, (keys, value))
    found = [finding for finding in report.findings if finding.rule == rule]
    assert found and found[0].location.key == key and said in found[0].message, [f.message for f in report.findings]
    assert report.exit_code() == 1


def test_kernel_blocks_that_do_not_divide(tmp_path: Path) -> None:
    found = the_finding(judged(tmp_path, (["groups", 2, "kernel_block_size"], 12)), "KVC624")
    assert "blocks of 16 tokens are no whole number of kernel blocks of 12" in found.message


def test_more_ranks_than_heads(tmp_path: Path) -> None:
    two = [(["tp"], 8), (["groups"], []), (["access"], ...), (["head_map"], [[0], [0], [1], [1], [2], [2], [3], [3]])]
    assert judged(tmp_path, *two).findings == ()
    wrong = the_finding(judged(tmp_path, *two[:3], (["head_map"], [[r // 4] for r in range(8)])), "KVC614")
    assert "rank 2 holds the KV heads [0], by the rule [1]" in wrong.message
    assert "cannot be cut for tp 3" in the_finding(judged(tmp_path, (["tp"], 3), *two[1:3]), "KVC614").message


@pytest.mark.parametrize(
    ("shape", "sizes", "names"),
    [
        ([8, 16, 16, 64], {"num_kv_heads": 16}, {"NHD", "HND"}),
        ([97871, 16, 2, 256], {"num_kv_heads": 2, "head_dim": 128}, {"NHD-fused", "NHD-flat-kv-inner"}),
        ([2, 2, 16, 4, 64], {"num_kv_heads": 4}, {"NHD-kv-first", "NHD-block-first"}),
    ],
)
def test_ambiguous_shapes(tmp_path: Path, shape: list[int], sizes: dict[str, int], names: set[str]) -> None:
    base = {"block_size": 16, "num_blocks": shape[0], "head_dim": 64, "groups": [{"shape": shape}]} | sizes
    report = judged(tmp_path, base=base)
    found = the_finding(report, "KVC612")
    assert names <= set(str(found.measured["readings"]).split(", "))
    assert found.severity == "info" and report.exit_code() == 0
    assert report.status == "partial", "a group without axes is not judged, and that is not clean"


def test_one_reading_is_no_ambiguity(tmp_path: Path) -> None:
    base = {"block_size": 16, "num_blocks": 9, "head_dim": 64, "num_kv_heads": 4, "groups": [{"shape": [9, 16, 4, 64]}]}
    assert judged(tmp_path, base=base).findings == ()


MLA = {
    "num_heads": 128,
    "num_kv_heads": 1,
    "head_dim": 576,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "block_size": 64,
    "num_blocks": 100,
    "tp": 8,
    "groups": [
        {
            "kind": "mla",
            "layers": [0],
            "axes": ["num_blocks", "block_size", "latent"],
            "shape": [100, 64, 576],
            "strides": [36864, 576, 1],
            "itemsize": 2,
            "parts": ["latent"],
        }
    ],
}


def mla(**changes: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(MLA))
    document["groups"][0] |= changes
    return document


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"shape": [100, 64, 656], "strides": [656 * 65, 656, 1], "itemsize": 1, "record": "latent-fp8-656"},
        {"shape": [100, 64, 656], "strides": [656 * 64, 656, 1], "itemsize": 1},
        {"shape": [100, 64, 584], "strides": [37440, 584, 1], "itemsize": 1, "record": "latent-fp8-584"},
        {"shape": [100, 64, 576], "strides": [36864, 576, 1], "itemsize": 1, "record": "latent-fp8-flat"},
    ],
)
def test_latent_records_that_are_right(tmp_path: Path, changes: dict[str, Any]) -> None:
    report = judged(tmp_path, base=mla(**changes))
    assert report.findings == () and report.status == "ok", [f.message for f in report.findings]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parts": ["k", "v"]}, "the group declares a V of its own"),
        ({"shape": [100, 64, 640], "strides": [40960, 640, 1], "itemsize": 1}, "a token takes 640 bytes"),
        (
            {"shape": [100, 64, 576], "itemsize": 1, "record": "latent-fp8-656"},
            "latent-fp8-656 takes 656 bytes a token, the tensor has 576",
        ),
        ({"record": "latent-int3"}, "no latent record is called 'latent-int3'"),
        ({"strides": [36864, 512, 1]}, "do not hold records of 576 items"),
    ],
)
def test_latent_records_that_are_wrong(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    report = judged(tmp_path, base=mla(**changes))
    assert any(said in finding.message for finding in report.findings if finding.rule == "KVC631"), report.findings


def test_what_is_not_declared_is_not_clean(tmp_path: Path) -> None:
    for edits in (
        [(["groups", 0, "strides"], ...)],
        [(["groups", 0, "axes"], ...)],
        [(["block_size"], ...)],
        [(["groups", 0, "axes", 0], "pages")],
    ):
        report = judged(tmp_path, *edits)
        assert report.status in ("partial", "findings") and "groups[0]" in report.unjudged, edits
    report = judged(tmp_path, (["groups", 0, "axes"], ["num_blocks", "block_size", "latent"]))
    assert any("axis latent the size 0" in finding.message for finding in report.findings)


@pytest.mark.parametrize(
    ("keys", "value", "said"),
    [
        (["isolation", "control_tokens"], {"x": "role"}, "'x' is no token id"),
        (["access", 0, "g"], 9, "group 9 is not declared"),
        (["groups", 0, "block_size"], 1 << 40, "have no traffic to count"),
        (["groups", 0, "axes", 3], "x", "have no traffic to count"),
        (["groups", 1, "axes"], ["num_blocks", "block_size", "latent"], "axis latent the size 0"),
    ],
)
def test_records_that_cannot_be_judged(tmp_path: Path, keys: list[Any], value: Any, said: str) -> None:
    report = judged(tmp_path, (keys, value))
    assert any(said in what for what in (*report.unjudged, *report.unjudged.values())), report.unjudged
    assert report.summary["crashed"] == 0


def test_an_order_of_axes_that_no_engine_has(tmp_path: Path) -> None:
    """The best order of these axes is its own, as no layout of the catalogue has them."""
    axes = ["num_blocks", "block_size", "kv", "num_kv_heads", "head_dim", "layers"]
    report = judged(tmp_path, (["groups", 1, "axes"], axes))
    assert report.summary["crashed"] == 0
    base = {"block_size": 4, "num_blocks": 3, "num_heads": 4, "num_kv_heads": 1, "head_dim": 8}
    group = {"axes": axes[:3] + axes[4:], "layers": [0, 1], "itemsize": 2}
    access = {"access": [{"num_tokens": 5, "is_group_shared": False}], "groups": [group]}
    assert (
        "the best order of these axes is declared"
        in the_finding(judged(tmp_path, base=base | access), "KVC613").message
    )


def test_a_reserved_size_that_is_too_small(tmp_path: Path) -> None:
    found = the_finding(judged(tmp_path, (["allocations", 0, "reserved"], 1000)), "KVC609")
    assert "3072 bytes requested, 1000 reserved" in found.message


def test_codes_that_differ_where_settings_agree(tmp_path: Path) -> None:
    assert "codes ab12 and ff" in the_finding(judged(tmp_path, (["paths", 1, "codes"], "ff")), "KVC628").message


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("kv.json", b"", "kv.json"),
        ("kv.json", b"[1]", "expected an object"),
        ("kv.json", b"{}", "none of them"),
        ("kv.json", b'{"groups": [{"shape": [0]}]}', "groups[0].shape[0]"),
        ("kv.json", b'{"num_blocks": "many"}', "num_blocks"),
        ("kv.json", b'{"num_blocks": 1e400}', "kv.json"),
        ("kv.json", b"\xff\xfe", "kv.json"),
        ("kv.json", b'{"a":' * 5000, "kv.json"),
        ("kv.toml", b"num_blocks = ", "TOML"),
        ("kv.toml", b"\xff", "TOML"),
        ("kv.jsonl", b"\n{}", "kv.jsonl"),
    ],
)
def test_files_that_are_no_declaration(tmp_path: Path, name: str, data: bytes, said: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    report = lint(path)
    assert report.exit_code() == 2 and report.failure is not None and said in report.failure, report.failure


def test_too_large_and_absent(tmp_path: Path) -> None:
    path = tmp_path / "kv.json"
    with path.open("wb") as stream:
        stream.truncate((16 << 20) + 1)
    assert "at most 16777216 bytes" in str(lint(path).failure)
    assert "No such file" in str(lint(tmp_path / "absent.json").failure)
    assert lint(tmp_path).failure


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "kv.toml"
    path.write_text(
        'num_kv_heads = 4\nhead_dim = 64\nblock_size = 16\nnum_blocks = 8\n[[groups]]\naxes = ["num_blocks", '
        '"block_size", "num_kv_heads", "head_dim"]\nshape = [8, 16, 4, 64]\nstrides = [4000, 256, 64, 1]\nitemsize = 2\n'
    )
    assert the_finding(lint(path), "KVC601").location.key == "groups[0].strides"


def test_hostile_sizes_take_no_time(tmp_path: Path) -> None:
    report = judged(
        tmp_path,
        (["tp"], 1 << 40),
        (["groups", 0, "layers"], list(range(4))),
        (["access", 0, "num_tokens"], 1 << 32),
    )
    assert report.failure is None and report.summary["crashed"] == 0
