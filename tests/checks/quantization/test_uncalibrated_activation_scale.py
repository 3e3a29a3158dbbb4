"""QNT119: who lacks an activation scale, and whose rule it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from tests.checks.quantization.judging import judge
from tests.checks.quantization.moe_patients import qwen_static_fp8


def drop_input_scales(workspace: Workspace, *parts: str) -> None:
    """Of all modules whose names contain every part."""
    for name in list(workspace.shard("model.safetensors").tensors):
        if name.endswith("input_scale") and all(part in name for part in parts):
            workspace.drop(name)


@pytest.mark.parametrize(
    ("parts", "rule"),
    [
        ((), "QNT119"),
        ((".experts.",), "QNT119"),
        (("self_attn",), "QNT119"),
        ((".layers.0.", "self_attn.q_proj"), "QNT101"),
        ((".layers.0.", "experts."), "QNT101"),
        (("experts.2.",), "QNT111"),
    ],
)
def test_each_pattern_is_one_rule(golden: Path, tmp_path: Path, parts: tuple[str, ...], rule: str) -> None:
    path = qwen_static_fp8(golden, tmp_path / "qwen")
    for candidate in ("QNT101", "QNT111", "QNT119"):
        found = judge(candidate, path, lambda workspace: drop_input_scales(workspace, *parts))
        assert bool(found) is (candidate == rule), candidate


@pytest.mark.parametrize("name", ["llm-compressor-fp8-dynamic", "llm-compressor-mxfp4", "gptqmodel-gptq-sym-g128"])
def test_dynamic_and_weight_only_need_none(golden: Path, name: str) -> None:
    assert judge("QNT119", golden / name) == []
