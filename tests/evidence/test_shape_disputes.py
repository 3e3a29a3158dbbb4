"""Who is outvoted: a key, or a tensor; and what the other formats make of it afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.target import open_target

KEYS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size")
FOLDERS = ("base-bf16", "bitsandbytes-nf4", "gptqmodel-gptq-sym-g128", "llm-compressor-w4a16-gptq-sym-g128")


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("folder", FOLDERS)
def test_wrong_key_is_convicted_with_its_true_value(golden: Path, folder: str, key: str) -> None:
    """Also where the headers tell only how many codes there are."""
    workspace = Workspace(open_target(golden / folder))
    config = workspace.json("config.json")
    true = config[key]
    config[key] = true * 2
    evidence = Evidence(workspace.source(), Settings())
    disputes = evidence.get("shape_disputes")
    assert [(item.key, item.declared, item.proven) for item in disputes.keys] == [(key, true * 2, true)]
    assert not disputes.tensors
    assert not [module.name for module in evidence.get("modules").values() if module.form.contradictions]


def test_two_wrong_keys_are_both_convicted(golden: Path) -> None:
    """One after the other."""
    workspace = Workspace(open_target(golden / "base-bf16"))
    workspace.json("config.json").update(intermediate_size=768, num_key_value_heads=4)
    keys = Evidence(workspace.source(), Settings()).get("shape_disputes").keys
    assert {(item.key, item.proven) for item in keys} == {("intermediate_size", 512), ("num_key_value_heads", 2)}


def test_key_left_to_its_default_is_traced_to_its_source(golden: Path) -> None:
    """Without head_dim the number of heads decides the head size."""
    workspace = Workspace(open_target(golden / "base-bf16"))
    config = workspace.json("config.json")
    del config["head_dim"]
    config["num_attention_heads"] = 8
    key = Evidence(workspace.source(), Settings()).get("shape_disputes").keys[0]
    assert (key.key, key.proven) in {("num_attention_heads", 4), ("num_key_value_heads", 4)}


def test_gguf_metadata_is_tried_with_what_follows_from_it(golden: Path) -> None:
    """`embedding_length` of a file without key lengths."""
    source = open_target(golden / "llama.cpp-q4_0")
    file = Evidence(source, Settings()).get("gguf").file
    workspace = Workspace(source)
    shard = workspace.shard(file)
    shard.set_metadata("llama.feed_forward_length", 640)  # type: ignore[attr-defined]
    evidence = Evidence(workspace.source(), Settings())
    (dispute,) = evidence.get("shape_disputes").keys
    assert (dispute.key, dispute.proven) == ("intermediate_size", 512)
    assert evidence.get("model_config").place(dispute.key).key == "llama.feed_forward_length"
