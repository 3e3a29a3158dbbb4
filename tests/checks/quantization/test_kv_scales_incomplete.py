"""QNT117: complete in other ways."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from tests.checks.quantization.judging import judge, write
from tests.checks.quantization.moe_patients import deepseek_fp8, qwen_modelopt_nvfp4

SHARD = "model.safetensors"
KV = "llm-compressor-fp8-static-kvcache"


def add(workspace: Workspace, *names: str) -> None:
    """One scale under each name."""
    for name in names:
        workspace.add(SHARD, name, np.full(1, 0.5, np.float32))


def test_old_single_scale_is_complete(golden: Path) -> None:
    names = [f"model.layers.{layer}.self_attn.kv_scale" for layer in (0, 1)]
    assert judge("QNT117", golden / "base-bf16", lambda workspace: add(workspace, *names)) == []
    (finding,) = judge("QNT117", golden / "base-bf16", lambda workspace: add(workspace, names[0]))
    assert finding.location.tensor == names[1]


def test_latent_attention_needs_one_scale(golden: Path, tmp_path: Path) -> None:
    path = deepseek_fp8(golden, tmp_path / "deepseek")
    names = [f"model.layers.{layer}.self_attn.k_scale" for layer in (0, 1)]
    assert judge("QNT117", path, lambda workspace: add(workspace, *names)) == []


def test_scales_below_an_engines_own_object(golden: Path) -> None:
    names = [f"model.layers.{layer}.self_attn.attn.{kind}_scale" for layer in (0, 1) for kind in "kv"]
    assert judge("QNT117", golden / "base-bf16", lambda workspace: add(workspace, *names)) == []
    (finding,) = judge("QNT117", golden / "base-bf16", lambda workspace: add(workspace, *names[:2]))
    assert {place.tensor for place in finding.all_places} == set(names[2:])


def test_scales_below_projections_are_pairs(golden: Path, tmp_path: Path) -> None:
    name = "model.layers.1.self_attn.v_proj.v_scale"
    path = qwen_modelopt_nvfp4(golden, tmp_path / "qwen")
    (finding,) = judge("QNT117", path, lambda workspace: workspace.drop(name))
    assert finding.location.tensor == name
    assert finding.location.module == "model.layers.1.self_attn.v_proj"


def test_declared_without_any_is_a_warning_unless_dynamic(golden: Path) -> None:
    def drop(workspace: Workspace, *, dynamic: bool) -> None:
        for name in list(workspace.shard(SHARD).tensors):
            if name.endswith(("k_scale", "v_scale")):
                workspace.drop(name)
        write(workspace, "kv_cache_scheme", {"dynamic": dynamic, "num_bits": 8, "type": "float", "strategy": "tensor"})

    (finding,) = judge("QNT117", golden / KV, lambda workspace: drop(workspace, dynamic=False))
    assert finding.severity is Severity.WARNING
    assert finding.location.key == "quantization_config.kv_cache_scheme"
    assert judge("QNT117", golden / KV, lambda workspace: drop(workspace, dynamic=True)) == []
