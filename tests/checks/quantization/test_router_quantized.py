"""QNT110: what is a router, and where only a list spares it."""

from __future__ import annotations

from pathlib import Path

from degarble.checkpoint.workspace import Workspace
from degarble.finding import Severity
from tests.checks.quantization.judging import judge, write
from tests.checks.quantization.moe_patients import deepseek_fp8, qwen_modelopt_nvfp4

MOE = "moe-qwen3moe-llmc-w4a16-g64"


def test_pattern_on_the_list_is_enough(golden: Path) -> None:
    entries = ["lm_head", "re:.*mlp\\.gate$"]
    assert judge("QNT110", golden / MOE, lambda workspace: write(workspace, "ignore", entries)) == []


def test_one_of_two_routers_blames_the_tensor(golden: Path) -> None:
    entries = ["lm_head", "model.layers.0.mlp.gate"]
    (finding,) = judge("QNT110", golden / MOE, lambda workspace: write(workspace, "ignore", entries))
    assert finding.location.file == "model.safetensors"
    assert finding.location.module == "model.layers.1.mlp.gate"
    assert finding.location.key == "quantization_config.ignore"


def test_native_fp8_spares_routers_by_itself(golden: Path, tmp_path: Path) -> None:
    assert judge("QNT110", deepseek_fp8(golden, tmp_path / "deepseek")) == []


def test_modelopt_names_routers_too(golden: Path, tmp_path: Path) -> None:
    path = qwen_modelopt_nvfp4(golden, tmp_path / "qwen")
    (finding,) = judge("QNT110", path, lambda workspace: write(workspace, "ignore", ["lm_head"]))
    assert finding.severity is Severity.WARNING
    assert finding.location.file == "config.json"


def test_gate_without_experts_is_no_router(golden: Path) -> None:
    def rename(workspace: Workspace) -> None:
        workspace.json("config.json").update({"model_type": "unheard_of", "architectures": ["UnheardOf"]})
        for name in list(workspace.shard("model.safetensors").tensors):
            workspace.rename(name, name.replace("gate_proj.", "gate."))

    assert judge("QNT110", golden / "llm-compressor-fp8-dynamic", rename) == []
