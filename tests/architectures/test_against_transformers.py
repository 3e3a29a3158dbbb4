"""Independent oracle: tiny models of every family, as transformers builds and saves them (opt-in)."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from degarble.architectures import Architecture, canonical_name, load_architecture, text_prefix
from tests.architectures.needs import missing, unknown

pytestmark = pytest.mark.engine

BASE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 10,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
QWEN_MOE = {"num_experts": 4, "moe_intermediate_size": 24}
SHARED = QWEN_MOE | {"shared_expert_intermediate_size": 40}
MLA = {"kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 6, "v_head_dim": 7}
ROUTED = {
    "n_routed_experts": 4,
    "n_shared_experts": 2,
    "moe_intermediate_size": 24,
    "first_k_dense_replace": 1,
}
DEEPSEEK = MLA | ROUTED | {"q_lora_rank": 20, "n_group": 1, "topk_group": 1}
LINEAR = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 6,
    "linear_value_head_dim": 5,
}

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama biases": ("llama", {"attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}),
    "mistral": ("mistral", {}),
    "ministral": ("ministral", {}),
    "ministral3": ("ministral3", {}),
    "smollm3": ("smollm3", {}),
    "granite": ("granite", {}),
    "qwen2": ("qwen2", {}),
    "qwen2_moe": ("qwen2_moe", SHARED | {"mlp_only_layers": [1]}),
    "qwen2_moe sparse step": ("qwen2_moe", SHARED | {"decoder_sparse_step": 2, "qkv_bias": False}),
    "qwen3": ("qwen3", {}),
    "qwen3 biases": ("qwen3", {"attention_bias": True}),
    "qwen3_moe": ("qwen3_moe", QWEN_MOE | {"mlp_only_layers": [0, 2]}),
    "mixtral": ("mixtral", {"num_local_experts": 4}),
    "deepseek_v2": ("deepseek_v2", DEEPSEEK),
    "deepseek_v2 without q_lora": ("deepseek_v2", DEEPSEEK | {"q_lora_rank": None, "attention_bias": True}),
    "deepseek_v3": ("deepseek_v3", DEEPSEEK),
    "deepseek_v3 biases": ("deepseek_v3", DEEPSEEK | {"attention_bias": True}),
    "deepseek_v32": ("deepseek_v32", DEEPSEEK | {"index_n_heads": 3, "index_head_dim": 8}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {}),
    "gemma3_text": ("gemma3_text", {}),
    "phi3": ("phi3", {}),
    "gpt_oss": ("gpt_oss", {"num_local_experts": 4}),
    "glm4": ("glm4", {}),
    "glm4_moe": ("glm4_moe", ROUTED | {"use_qk_norm": True}),
    "glm4_moe biases": ("glm4_moe", ROUTED | {"attention_bias": True}),
    "minimax": ("minimax", {"num_local_experts": 4, "block_size": 16}),
    "minimax_m2": ("minimax_m2", {"num_local_experts": 4}),
    "qwen3_next": ("qwen3_next", SHARED | LINEAR),
    "qwen3_next biases": ("qwen3_next", SHARED | LINEAR | {"attention_bias": True, "mlp_only_layers": [1]}),
}

WRAPPERS: dict[str, tuple[str, dict[str, Any]]] = {
    "llava": ("llama", {}),
    "mistral3": ("mistral", {}),
    "gemma3": ("gemma3_text", {}),
    "qwen2_vl": ("qwen2_vl_text", {"head_dim": 8}),
    "qwen2_5_vl": ("qwen2_5_vl_text", {"head_dim": 8}),
    "qwen3_vl": ("qwen3_vl_text", {}),
}


def check(architecture: Architecture | None, stored: dict[str, tuple[int, ...]]) -> None:
    """Exactly the parameters of the model, each in its shape."""
    assert architecture is not None
    assert unknown(architecture, stored) == []
    assert missing(architecture, stored) == set()
    for name, shape in stored.items():
        template = architecture.match(name)
        assert template is not None and template.dims and template.shape == shape, (name, shape, template)


def config_of(model_type: str, extra: dict[str, Any]) -> Any:
    """A tiny config of the family; skips where transformers lacks it."""
    transformers = pytest.importorskip("transformers")
    if model_type not in transformers.CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    return transformers.AutoConfig.for_model(model_type, **(BASE | extra))


@pytest.mark.parametrize("case", CASES)
def test_parameters_in_memory(case: str) -> None:
    """state_dict() of the model, from its full config and from the sparse one."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = config_of(*CASES[case])
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    check(load_architecture(json.loads(config.to_json_string())), stored)
    check(load_architecture({"model_type": CASES[case][0]} | BASE | CASES[case][1]), stored)


@pytest.mark.parametrize("case", CASES)
def test_parameters_on_disk(case: str, tmp_path: Path) -> None:
    """What save_pretrained() writes, under the published names."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_config(config_of(*CASES[case]), dtype=torch.bfloat16)
    model.save_pretrained(tmp_path)
    with (tmp_path / "model.safetensors").open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    stored = {name: tuple(row["shape"]) for name, row in header.items() if name != "__metadata__"}
    check(load_architecture(json.loads((tmp_path / "config.json").read_text())), stored)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_text_model_of_a_multimodal_one(wrapper: str) -> None:
    """The prefix goes, other towers are not judged, the rest is the text model."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    text_type, extra = WRAPPERS[wrapper]
    text = BASE | extra | {"model_type": text_type, "rope_parameters": rope(wrapper)}
    text = {key: value for key, value in text.items() if value is not None}
    config = transformers.AutoConfig.for_model(wrapper, text_config=text)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(config)
    stored = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    prefix = text_prefix(stored)
    names = {found: shape for name, shape in stored.items() if (found := canonical_name(name, prefix))}
    assert len(names) < len(stored)
    check(load_architecture(json.loads(config.to_json_string())), names)


def rope(wrapper: str) -> dict[str, Any] | None:
    """Qwen's vision models need their rotary sections in any size."""
    if not wrapper.startswith("qwen"):
        return None
    return {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]}
