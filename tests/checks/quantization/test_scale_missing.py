"""QNT101 beyond the planted faults."""

from __future__ import annotations

from pathlib import Path

from degarble.checkpoint.workspace import Workspace
from degarble.target import open_target
from tests.checks.quantization.judging import judge, judge_workspace
from tests.checks.quantization.moe_patients import deepseek_fp8, qwen_static_fp8

EMPTY_SHARD = (2).to_bytes(8, "little") + b"{}"


def test_companion_in_another_shard_is_there(golden: Path) -> None:
    def move(workspace: Workspace) -> None:
        name = "model.layers.0.mlp.down_proj.weight_scale"
        slot = workspace.holder(name).tensors[name]
        data = b"".join(workspace.source().read(s.file, s.start, s.length) for s in slot.segments if s.file)
        workspace.drop(name)
        workspace.write("model-extra.safetensors", EMPTY_SHARD)
        workspace.shard("model-extra.safetensors").set(name, slot.dtype, slot.shape, data)

    assert judge("QNT101", golden / "llm-compressor-fp8-dynamic", move) == []


def test_group_index_is_optional_without_activation_order(golden: Path) -> None:
    name = "model.layers.1.mlp.up_proj.g_idx"
    assert judge("QNT101", golden / "gptqmodel-gptq-sym-g128", lambda workspace: workspace.drop(name)) == []


def test_message_names_the_missing_tensor(golden: Path) -> None:
    name = "model.layers.0.self_attn.k_proj.weight_scale_inv"
    (finding,) = judge("QNT101", golden / "own-deepseek-fp8-block-576", lambda workspace: workspace.drop(name))
    assert name in finding.message
    assert finding.location.tensor == "model.layers.0.self_attn.k_proj.weight"


def test_prediction_layer_counts(golden: Path, tmp_path: Path) -> None:
    name = "model.layers.2.self_attn.o_proj.weight_scale_inv"
    path = deepseek_fp8(golden, tmp_path / "deepseek")
    (finding,) = judge("QNT101", path, lambda workspace: workspace.drop(name))
    assert finding.location.layer == 2


def test_one_finding_for_equal_modules(golden: Path) -> None:
    def drop_all(workspace: Workspace) -> None:
        for name in list(workspace.shard("model.safetensors").tensors):
            if name.endswith(".weight_scale_inv"):
                workspace.drop(name)

    (finding,) = judge("QNT101", golden / "own-deepseek-fp8-block-576", drop_all)
    assert len(finding.all_places) == 7


def test_input_scales_of_experts_are_not_its_business(golden: Path, tmp_path: Path) -> None:
    workspace = Workspace(open_target(qwen_static_fp8(golden, tmp_path / "qwen")))
    workspace.drop("model.layers.0.mlp.experts.1.up_proj.input_scale")
    assert judge_workspace("QNT101", workspace) == []
    assert [f.location.expert for f in judge_workspace("QNT111", workspace)] == [1]
