"""QNT109: look-alikes that must stay silent, and what the message adds."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.finding import Severity
from tests.checks.quantization.judging import judge, write

SHARD = "model.safetensors"
MLP = "model.layers.0.mlp.down_proj"


def make_plain(workspace: Workspace, module: str) -> None:
    """Store one module as bf16, companions gone."""
    shape = Evidence(workspace.base, Settings()).get("modules")[module].form.shape
    for name in [name for name in workspace.shard(SHARD).tensors if name.startswith(module + ".")]:
        workspace.drop(name)
    values = np.random.default_rng(0).standard_normal(shape) * 0.02
    workspace.add(SHARD, f"{module}.weight", values.astype(ml_dtypes.bfloat16))


def wrap(workspace: Workspace) -> None:
    """Move the text model below a multimodal wrapper."""
    for name in list(workspace.shard(SHARD).tensors):
        workspace.rename(name, name.replace("model.", "model.language_model.", 1))
    config = workspace.json("config.json")
    text = {key: config.pop(key) for key in list(config) if key != "quantization_config"}
    config |= {"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"], "text_config": text}


@pytest.mark.parametrize(
    ("entry", "silent"),
    [
        (MLP, True),
        ("re:.*down_proj$", True),
        ("re:.*layers\\.0\\..*", True),
        ("Linear", True),
        ("model.layers.1.mlp.down_proj", False),
    ],
)
def test_skip_entries(golden: Path, entry: str, silent: bool) -> None:
    def edit(workspace: Workspace) -> None:
        make_plain(workspace, MLP)
        write(workspace, "ignore", ["lm_head", entry])

    assert (judge("QNT109", golden / "llm-compressor-fp8-dynamic", edit) == []) is silent


def test_entry_that_some_engines_read_belongs_to_another_rule(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        make_plain(workspace, MLP)
        write(workspace, "modules_to_not_convert", ["mlp.down_proj"])

    assert judge("QNT109", golden / "own-deepseek-fp8-block-576", edit) == []


@pytest.mark.parametrize("root", ["language_model.model.", "model.language_model.", "model."])
def test_root_of_a_wrapper_is_spelt_in_several_ways(golden: Path, root: str) -> None:
    def edit(workspace: Workspace) -> None:
        make_plain(workspace, MLP)
        write(workspace, "ignore", ["lm_head", MLP.replace("model.", root, 1)])
        wrap(workspace)

    assert judge("QNT109", golden / "llm-compressor-fp8-dynamic", edit) == []


def test_vision_tower_is_not_judged(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        wrap(workspace)
        weight = np.zeros((64, 64), ml_dtypes.bfloat16)
        workspace.add(SHARD, "model.vision_tower.encoder.layers.0.mlp.fc1.weight", weight)

    assert judge("QNT109", golden / "llm-compressor-fp8-dynamic", edit) == []


def test_unknown_family_needs_a_quantised_peer(golden: Path) -> None:
    def all_layers(workspace: Workspace) -> None:
        workspace.json("config.json").update({"model_type": "unheard_of", "architectures": ["UnheardOf"]})
        for layer in (0, 1):
            make_plain(workspace, f"model.layers.{layer}.mlp.down_proj")

    def one_layer(workspace: Workspace) -> None:
        workspace.json("config.json").update({"model_type": "unheard_of", "architectures": ["UnheardOf"]})
        make_plain(workspace, MLP)

    assert judge("QNT109", golden / "llm-compressor-fp8-dynamic", all_layers) == []
    assert [f.location.module for f in judge("QNT109", golden / "llm-compressor-fp8-dynamic", one_layer)] == [MLP]


def test_ragged_block_is_explained(golden: Path) -> None:
    path = golden / "own-deepseek-fp8-block-576"
    (finding,) = judge("QNT109", path, lambda workspace: make_plain(workspace, MLP))
    assert "128x128 does not divide it" in finding.message
    assert finding.location.file == SHARD


def test_torchao_takes_a_plain_weight_as_it_is(golden: Path) -> None:
    (finding,) = judge("QNT109", golden / "torchao-int8wo", lambda workspace: make_plain(workspace, MLP))
    assert finding.severity is Severity.WARNING


def test_mlx_promises_nothing(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        workspace.json("config.json")["quantization"] = {"bits": 4, "group_size": 64}

    assert judge("QNT109", golden / "base-bf16", edit) == []


def test_most_modules_plain_blames_the_config(golden: Path) -> None:
    def edit(workspace: Workspace) -> None:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            make_plain(workspace, f"model.layers.0.self_attn.{name}")

    (finding,) = judge("QNT109", golden / "own-deepseek-fp8-block-576", edit)
    assert finding.location.file == "config.json"
    assert finding.location.key == "quantization_config"
    assert len(finding.all_places) == 4
