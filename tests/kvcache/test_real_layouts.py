"""`kv lint` on layouts as engines allocate them: right ones are silent, and each published fault is found with its number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from degarble.kv import lint
from degarble.report.interface import Report
from degarble.runner import Outcome

Fields = dict[str, Any]


def judged(tmp_path: Path, declaration: Fields) -> Report:
    path = tmp_path / "kv.json"
    path.write_text(json.dumps(declaration))
    report = lint(path)
    assert report.failure is None and report.summary["crashed"] == 0
    return report


def contiguous(shape: list[int]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def group(axes: str, shape: list[int], **fields: Any) -> Fields:
    """A contiguous tensor, unless strides are given."""
    known = {
        "axes": axes.split(),
        "shape": shape,
        "strides": contiguous(shape),
        "itemsize": 2,
        "index_bits": 64,
        "layers": [0],
    }
    return known | fields


LATENT = "num_blocks block_size latent"
GQA = {"num_heads": 32, "num_kv_heads": 8, "head_dim": 128, "block_size": 16, "num_blocks": 1000}
MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_kv_heads": 1, "block_size": 64, "num_blocks": 1000}
NHD = "num_blocks block_size num_kv_heads head_dim"
ENGINES: dict[str, Fields] = {
    "vLLM FlashAttention, K/V first": GQA
    | {"groups": [group("kv num_blocks block_size num_kv_heads head_dim", [2, 1000, 16, 8, 128])]},
    "vLLM FlashInfer, HND": GQA
    | {"groups": [group("num_blocks kv num_kv_heads block_size head_dim", [1000, 2, 8, 16, 128])]},
    "vLLM 0.32 on a CPU, as a connector sees it": {
        "num_heads": 9, "num_kv_heads": 3, "head_dim": 64, "block_size": 128, "num_blocks": 364,
        "groups": [group("num_blocks num_kv_heads block_size kv*head_dim", [364, 3, 128, 128], strides=[49152, 16384, 128, 1])],
    },
    "vLLM, all layers in one page": GQA
    | {"groups": [group("num_blocks layers kv block_size num_kv_heads head_dim", [1000, 4, 2, 16, 8, 128], layers=[0, 1, 2, 3])]},
    "padded pages": GQA | {"groups": [group(NHD, [1000, 16, 8, 128], strides=[16384 + 512, 1024, 128, 1])]},
    "SGLang, one row a slot": GQA
    | {"block_size": 1, "groups": [group("num_blocks*block_size num_kv_heads head_dim", [1000, 8, 128])]},
    "four KV heads on eight ranks": GQA
    | {"num_kv_heads": 4, "tp": 8, "head_map": [[0], [0], [1], [1], [2], [2], [3], [3]],
       "groups": [group(NHD, [1000, 16, 1, 128])]},
    "DeepSeek, bf16 latent": MLA | {"groups": [group(LATENT, [1000, 64, 576], kind="mla", parts=["latent"])]},
    "DeepSeek, FP8 record of 656 bytes": MLA
    | {"groups": [group(LATENT, [1000, 64, 656], kind="mla", itemsize=1, record="latent-fp8-656")]},
    "DeepSeek, FP8 record in padded pages": MLA
    | {"groups": [group(LATENT, [1000, 64, 656], kind="mla", itemsize=1, strides=[42112, 656, 1])]},
}  # fmt: skip


@pytest.mark.parametrize("name", ENGINES)
def test_layouts_of_engines_are_silent(name: str, tmp_path: Path) -> None:
    report = judged(tmp_path, ENGINES[name])
    assert report.findings == () and not report.unjudged, [(f.rule, f.message) for f in report.findings]
    ran = {result.rule for result in report.results if result.outcome is Outcome.OK}
    assert {"KVC601", "KVC614", "KVC619"} <= ran and ("KVC631" in ran) == name.startswith("DeepSeek")


@pytest.mark.parametrize(
    ("declaration", "rule", "said"),
    [
        (
            GQA
            | {
                "num_blocks": 2200,
                "groups": [group(NHD, [2200, 16, 8, 128], strides=[1_039_680, 1024, 128, 1], index_bits=32)],
            },
            "KVC619",
            "block 2066 is the first whose index passes 2^31 elements",
        ),
        (
            GQA
            | {
                "num_blocks": 3000,
                "groups": [
                    group(NHD, [3000, 16, 8, 128], strides=[1_002_240, 1024, 128, 1], itemsize=1, index_bits=32)
                ],
            },
            "KVC619",
            "block 2143 is the first whose index passes 2^31",
        ),
        (
            GQA | {"groups": [group(NHD, [1000, 16, 8, 128], strides=[16384, 128, 2048, 1], layout="NHD")]},
            "KVC601",
            "the formula of HND",
        ),
        (
            GQA | {"groups": [group(NHD, [1000, 16, 8, 128], strides=[128 * 16 * 1000 // 200, 1024, 128, 1])]},
            "KVC601",
            "so that two coordinates share one element",
        ),
        (
            {"num_kv_heads": 2, "head_dim": 128, "block_size": 16, "num_blocks": 97871}
            | {"groups": [{"shape": [97871, 16, 2, 256]}]},
            "KVC612",
            "NHD-fused",
        ),
        (
            MLA | {"groups": [group(LATENT, [1000, 64, 576], kind="mla", itemsize=1, record="latent-fp8-656")]},
            "KVC631",
            "latent-fp8-656 takes 656 bytes a token, the tensor has 576",
        ),
        (
            MLA | {"groups": [group(LATENT, [1000, 64, 656], kind="mla", itemsize=2)]},
            "KVC631",
            "a token takes 1312 bytes",
        ),
        (
            GQA | {"num_kv_heads": 4, "tp": 8, "head_map": [[0], [1], [2], [3], [0], [1], [2], [3]], "groups": []},
            "KVC614",
            "rank 1 holds the KV heads [1], by the rule [0]",
        ),
        (
            GQA | {"groups": [group(NHD, [2000, 8, 8, 128], block_size=16, kernel_block_size=12)]},
            "KVC624",
            "no whole number of kernel blocks of 12",
        ),
    ],
    ids=["vllm-xpu-kernels#445", "vllm#52109", "HND as NHD", "overlap", "LMCache#4467",
         "656 in 576", "656 in 16 bits", "heads", "kernel blocks"],
)  # fmt: skip
def test_published_faults(declaration: Fields, rule: str, said: str, tmp_path: Path) -> None:
    found = [finding for finding in judged(tmp_path, declaration).findings if finding.rule == rule]
    assert found and said in found[0].message, [(f.rule, f.message) for f in judged(tmp_path, declaration).findings]


def test_a_head_major_pool_has_the_stride_of_the_post_mortem_and_no_other_of_its_axes(tmp_path: Path) -> None:
    """stride[0] = head_dim·block_size·num_blocks holds there; declared as NHD the same tensor is found."""
    head_major = group("num_kv_heads num_blocks block_size head_dim", [8, 1000, 16, 128])
    assert head_major["strides"][0] == 128 * 16 * 1000
    assert judged(tmp_path, GQA | {"groups": [head_major]}).findings == ()
    as_nhd = group(NHD, [8, 1000, 16, 128])
    assert any(finding.rule == "KVC601" for finding in judged(tmp_path, GQA | {"groups": [as_nhd]}).findings)
