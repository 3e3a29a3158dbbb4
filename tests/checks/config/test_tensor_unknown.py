"""CFG110: which unknown names are faults, and which are by-products."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from degarble.registry import Level
from degarble.target import open_target
from tests.checks.config.checkpoints import config_of, found, shapes_of, source


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "model.layers.0.self_attn.k_scale",
        "model.layers.0.self_attn.q_proj.lora_A.weight",
        "vision_tower.encoder.layers.0.q_proj.weight",
        "mtp.layers.0.q_proj.weight",
    ],
)
def test_by_product_is_silent(name: str) -> None:
    """Buffers, cache scales, adapters, towers, prediction layers."""
    config = config_of("llama")
    assert found(source(config, shapes_of(config) | {name: (4,)})) == []


def test_stray_tensor_is_a_warning() -> None:
    """Nothing is missing, so nothing breaks."""
    config = config_of("llama")
    findings = found(source(config, shapes_of(config) | {"model.layers.0.mlp.extra.weight": (4, 4)}))
    assert [(f.rule, f.severity) for f in findings] == [("CFG110", Severity.WARNING)]


def test_fused_experts_without_weight_in_their_name_are_the_cause() -> None:
    """llm-compressor 0.12.0: `gate_up_proj_packed`, and nothing that a loader knows."""
    config = config_of("qwen3_moe", mlp_only_layers=[])
    shapes = {name: shape for name, shape in shapes_of(config).items() if ".experts." not in name}
    for layer in range(4):
        for name in ("gate_up_proj", "down_proj"):
            shapes |= {
                f"model.layers.{layer}.mlp.experts.{name}_{part}": (4, 8) for part in ("packed", "scale", "shape")
            }
    findings = found(source(config, shapes))
    assert [f.rule for f in findings if f.role == "cause"] == ["CFG110"]
    assert findings[0].severity is Severity.ERROR
    assert {f.rule for f in findings if f.role == "symptom"} == {"CFG104"}


def test_real_mixtral_with_renamed_experts(golden: Path) -> None:
    """Nobody renames on disk but this tool: the names are the first cause."""
    causes = [f for f in found(open_target(golden / "moe-mixtral-llmc-w4a16-g64")) if f.role == "cause"]
    assert [(f.rule, f.severity) for f in causes] == [("CFG110", Severity.ERROR)]
    assert any((place.module or "").endswith(".w1") for place in causes[0].all_places)


@pytest.mark.parametrize(("value", "expected"), [(0.0, []), (0.5, ["CFG110"])])
def test_added_bias_counts_only_with_values(golden: Path, value: float, expected: list[str]) -> None:
    """GPTQ tools add zero biases; at header level they cannot be told apart, so nothing is said."""
    workspace = Workspace(open_target(golden / "gptqmodel-gptq-sym-g128"))
    workspace.add("model.safetensors", "model.layers.0.mlp.up_proj.bias", np.full(512, value, np.float16))
    assert [f.rule for f in found(workspace.source())] == expected
    assert found(workspace.source(), level=Level.HEADER) == []


def test_part_renamed_under_its_module_is_the_cause(golden: Path) -> None:
    """`weight_packed` became `packed`: scales without codes are the symptom."""
    workspace = Workspace(open_target(golden / "llm-compressor-w4a16-gptq-sym-g128"))
    workspace.rename("model.layers.1.mlp.up_proj.weight_packed", "model.layers.1.mlp.up_proj.packed")
    findings = found(workspace.source())
    assert [(f.rule, f.severity) for f in findings] == [("CFG110", Severity.ERROR)]
