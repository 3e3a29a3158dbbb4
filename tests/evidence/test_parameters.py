"""Names and places of what is not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.target import open_target


@pytest.mark.parametrize(
    ("folder", "module", "tensor"),
    [
        ("base-bf16", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.weight"),
        ("gptqmodel-gptq-sym-g128", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj.qweight"),
        ("torchao-int8wo", "model.layers.1.mlp.up_proj", "model.layers.1.mlp.up_proj._weight_qdata"),
        ("llama.cpp-q4_0", "blk.1.ffn_up", "blk.1.ffn_up.weight"),
        ("gguf-py-bf16", "blk.0.ffn_up", "blk.0.ffn_up.weight"),
        ("llama.cpp-q4_0", "output_norm", "output_norm.weight"),
    ],
)
def test_absent_parameter_has_the_name_it_would_have(golden: Path, folder: str, module: str, tensor: str) -> None:
    """In the file's own vocabulary and format, with or without peers to learn from."""
    source = open_target(golden / folder)
    workspace = Workspace(source)
    for info in Evidence(source, Settings()).get("modules")[module].parts.values():
        workspace.drop(info.name)
    evidence = Evidence(workspace.source(), Settings())
    (item,) = evidence.get("parameters").missing
    place = evidence.get("disk_names").place(item, item.positions[0])
    assert (place.module, place.tensor) == (module, tensor)
    assert place.file is not None


def test_nested_keys_are_changed_where_they_stand(golden: Path) -> None:
    """`with_value` changes the language model's own level and nothing else."""
    workspace = Workspace(open_target(golden / "base-bf16"))
    config = workspace.json("config.json")
    inner = dict(config)
    config.clear()
    config |= {"model_type": "llava", "text_config": inner, "hidden_size": 1}
    found = Evidence(workspace.source(), Settings()).get("model_config")
    changed = found.with_value("hidden_size", 512)
    assert changed.text["hidden_size"] == 512 and changed.values["hidden_size"] == 1
    assert found.text["hidden_size"] == 256
    assert found.place("hidden_size").key == "text_config.hidden_size"


def test_unknown_gguf_name_keeps_its_layer(golden: Path) -> None:
    """So that it can be reported where it is."""
    source = open_target(golden / "llama.cpp-q4_0")
    workspace = Workspace(source)
    workspace.rename("blk.1.ffn_up.weight", "blk.1.ffn_upward.weight")
    module = Evidence(workspace.source(), Settings()).get("modules")["blk.1.ffn_upward"]
    assert (module.layer, module.canonical) == (1, "model.layers.1.ffn_upward")
