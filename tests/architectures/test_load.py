"""From configs to architectures: nesting, tying, MTP layers, GGUF's per-layer sizes, and hostile values."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble.architectures import (
    ArchitectureError,
    Container,
    gguf_canonical,
    gguf_config,
    load_architecture,
)
from degarble.architectures.family import known_model_types

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
}
MOE: dict[str, Any] = LLAMA | {
    "q_lora_rank": 16,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_local_experts": 4,
    "n_shared_experts": 1,
    "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 24,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}


def load(config: dict[str, Any], container: Container = Container.HF) -> Any:
    """The architecture, which must exist."""
    architecture = load_architecture(config, container=container)
    assert architecture is not None
    return architecture


@pytest.mark.parametrize("model_type", known_model_types())
@pytest.mark.parametrize("container", list(Container))
def test_every_family_loads(model_type: str, container: Container) -> None:
    """Each template matches its own first name and is well formed."""
    architecture = load(MOE | {"model_type": model_type}, container)
    for template in architecture.templates:
        first = next(template.names())
        assert architecture.match(first) is not None
        assert template.kind in {"linear", "norm", "embedding", "head", "router", "bias", "other"}
        assert template.dims or template.kind == "other"
        assert len(template.dims) == len(template.shape)
    assert architecture.num_layers == 3


def test_numbers_out_of_range_do_not_match() -> None:
    """Layers and experts beyond the config are unknown tensors."""
    architecture = load(MOE | {"model_type": "deepseek_v3"})
    assert architecture.match("model.layers.1.mlp.experts.3.up_proj.weight").shape == (24, 64)
    assert architecture.match("model.layers.1.mlp.experts.4.up_proj.weight") is None
    assert architecture.match("model.layers.0.mlp.experts.3.up_proj.weight") is None, "layer 0 is dense"
    assert architecture.match("model.layers.4.input_layernorm.weight") is None
    assert architecture.match("model.layers.{layer}.input_layernorm.weight") is None


def test_mtp_layers_are_allowed_and_not_needed() -> None:
    """Declared MTP layers repeat the decoder layer."""
    architecture = load(MOE | {"model_type": "deepseek_v3"})
    assert architecture.mtp_layers == (3,)
    assert not architecture.match("model.layers.3.eh_proj.weight").needed
    assert not architecture.match("model.layers.3.mlp.experts.0.up_proj.weight").needed
    assert load(MOE | {"model_type": "deepseek_v3", "num_nextn_predict_layers": 0}).mtp_layers == ()


def test_q_lora_rank_null_means_a_plain_q_proj() -> None:
    """V2-Lite says null; an absent key would mean 1536."""
    plain = load(MOE | {"model_type": "deepseek_v2", "q_lora_rank": None})
    assert plain.match("model.layers.0.self_attn.q_proj.weight").shape == (48, 64)
    assert plain.match("model.layers.0.self_attn.q_a_proj.weight") is None


@pytest.mark.parametrize(
    ("top", "text", "tied"),
    [(None, None, False), (True, None, True), (True, False, False), (False, True, True), (None, True, True)],
)
def test_the_text_models_tie_flag_wins(top: bool | None, text: bool | None, tied: bool) -> None:
    """Inner flag, else outer flag, else the default."""
    inner = LLAMA if text is None else LLAMA | {"tie_word_embeddings": text}
    config: dict[str, Any] = {"model_type": "llava", "text_config": inner}
    architecture = load(config if top is None else config | {"tie_word_embeddings": top})
    assert architecture.tied is tied
    assert architecture.match("lm_head.weight").needed is not tied


def test_a_nested_config_may_leave_out_what_its_class_has() -> None:
    """Published Gemma 3 and LLaVA configs do."""
    inner = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
    }
    architecture = load({"model_type": "gemma3", "text_config": inner})
    assert architecture.tied and architecture.norm_convention == "1+w"
    assert architecture.match("model.layers.0.self_attn.k_proj.weight").shape == (1024, 2560)
    with pytest.raises(ArchitectureError, match="vocab_size"):
        load_architecture(inner)
    assert load({"model_type": "llava", "text_config": {"vocab_size": 32064}}).family == "llama"


def test_unknown_families() -> None:
    """No data is None, never a guess."""
    assert load_architecture({}) is None
    assert load_architecture({"model_type": "mamba"}) is None
    assert load_architecture({"model_type": "clip", "text_config": {"model_type": "clip_text_model"}}) is None
    assert load_architecture({"model_type": "../parts", "architectures": [None]}) is None
    assert load(LLAMA | {"model_type": "own", "architectures": ["LlamaForCausalLM"]}).model_type == "llama"


def test_lightning_layers_follow_attn_type_list() -> None:
    """0 is lightning, 1 is softmax attention."""
    architecture = load(MOE | {"model_type": "minimax_m1", "attn_type_list": [0, 0, 1]})
    assert architecture.match("model.layers.1.self_attn.qkv_proj.weight").shape == (192, 64)
    assert architecture.match("model.layers.1.self_attn.q_proj.weight") is None
    assert architecture.match("model.layers.2.self_attn.q_proj.weight").needed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**12),
        ("num_hidden_layers", 0),
        ("hidden_size", "4096"),
        ("hidden_size", 64.0),
        ("hidden_size", True),
        ("hidden_size", -1),
        pytest.param("hidden_size", 10**5000, id="huge"),
        ("vocab_size", None),
        ("num_attention_heads", 128),
        ("num_key_value_heads", [1, 2, 3]),
        ("tie_word_embeddings", "false"),
        ("attention_bias", 1),
    ],
)
def test_hostile_value(key: str, value: object) -> None:
    """One wrong value names its key in a short message."""
    with pytest.raises(ArchitectureError) as error:
        load_architecture(LLAMA | {key: value})
    assert error.value.key in (key, "head_dim")
    assert len(str(error.value)) < 300


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(10**12) | st.just(2),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*MOE, "text_config"]), inner, max_size=6)
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(
    model_type=st.sampled_from(known_model_types()),
    junk=st.dictionaries(st.sampled_from([*MOE, "layer_types", "text_config", "architectures"]), JUNK, max_size=5),
    container=st.sampled_from(Container),
)
def test_hostile_configs_raise_one_error(model_type: str, junk: dict[str, Any], container: Container) -> None:
    """Junk gives ArchitectureError or an architecture, nothing else."""
    with suppress(ArchitectureError):
        load_architecture(MOE | {"model_type": model_type} | junk, container=container)


@settings(max_examples=100, deadline=None)
@given(junk=st.dictionaries(st.sampled_from(["block_count", "embedding_length", "attention.head_count"]), JUNK))
def test_hostile_metadata_raise_one_error(junk: dict[str, Any]) -> None:
    """The same by way of GGUF metadata."""
    metadata = GGUF | {f"llama.{key}": value for key, value in junk.items()}
    with suppress(ArchitectureError):
        load_architecture(gguf_config(metadata, 100)[0], container=Container.GGUF)


GGUF: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": 64,
    "llama.block_count": 3,
    "llama.feed_forward_length": [96, 0, 48],
    "llama.attention.head_count": [4, 4, 0],
    "llama.attention.head_count_kv": [2, 1, 0],
    "llama.attention.key_length": 16,
}


def test_gguf_sizes_per_layer() -> None:
    """Each layer gets its own shape; a size of 0 takes the parameter away."""
    config, origin = gguf_config(GGUF, 100)
    assert origin["num_key_value_heads"] == "llama.attention.head_count_kv"
    assert origin["vocab_size"] == "token_embd.weight"
    architecture = load(config, Container.GGUF)
    assert architecture.match("model.layers.0.self_attn.k_proj.weight").shape == (32, 64)
    assert architecture.match("model.layers.1.self_attn.k_proj.weight").shape == (16, 64)
    assert architecture.match("model.layers.2.self_attn.k_proj.weight") is None
    assert architecture.match("model.layers.1.mlp.up_proj.weight") is None
    assert architecture.match("model.layers.2.mlp.up_proj.weight").shape == (48, 64)
    assert architecture.match("model.layers.0.self_attn.q_proj.bias").needed is False, "GGUF cannot declare it"
    assert architecture.match("lm_head.weight").needed is False
    assert not architecture.match("rope_freqs.weight").needed


def test_gguf_deepseek() -> None:
    """MLA by head, stacked experts, MTP blocks counted in block_count."""
    metadata = {
        "general.architecture": "deepseek2",
        "deepseek2.embedding_length": 64,
        "deepseek2.block_count": 4,
        "deepseek2.nextn_predict_layers": 1,
        "deepseek2.feed_forward_length": 96,
        "deepseek2.attention.head_count": 4,
        "deepseek2.attention.head_count_kv": 1,
        "deepseek2.attention.key_length": 20,
        "deepseek2.attention.value_length": 16,
        "deepseek2.attention.key_length_mla": 12,
        "deepseek2.attention.value_length_mla": 8,
        "deepseek2.attention.q_lora_rank": 24,
        "deepseek2.attention.kv_lora_rank": 16,
        "deepseek2.rope.dimension_count": 4,
        "deepseek2.expert_count": 8,
        "deepseek2.expert_shared_count": 1,
        "deepseek2.expert_feed_forward_length": 32,
        "deepseek2.leading_dense_block_count": 1,
        "deepseek2.expert_gating_func": 2,
        "tokenizer.ggml.tokens": ["a"] * 50,
    }
    architecture = load(gguf_config(metadata, 50, has_output=True)[0], Container.GGUF)
    assert (architecture.model_type, architecture.num_layers, architecture.mtp_layers) == (
        "deepseek_v3",
        3,
        (3,),
    )
    shapes = {
        "blk.0.attn_k_b.weight": (4, 16, 8),
        "blk.0.attn_v_b.weight": (4, 8, 16),
        "blk.0.attn_kv_b.weight": (64, 16),
        "blk.0.attn_q_b.weight": (48, 24),
        "blk.1.ffn_gate_exps.weight": (8, 32, 64),
        "blk.1.ffn_down_exps.weight": (8, 64, 32),
        "blk.1.exp_probs_b.bias": (8,),
        "blk.1.ffn_up_shexp.weight": (32, 64),
        "blk.3.nextn.eh_proj.weight": (64, 128),
        "output.weight": (50, 64),
    }
    for name, shape in shapes.items():
        assert architecture.match(gguf_canonical(name, "deepseek2")).shape == shape, name


@pytest.mark.parametrize(
    ("architecture", "name", "canonical"),
    [
        ("llama", "blk.3.ffn_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ("gemma3", "blk.3.ffn_norm.weight", "model.layers.3.pre_feedforward_layernorm.weight"),
        ("glm4", "blk.3.post_attention_norm.weight", "model.layers.3.post_self_attn_layernorm.weight"),
        ("glm4moe", "blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"),
        ("gpt-oss", "blk.3.ffn_gate_inp.bias", "model.layers.3.mlp.router.bias"),
        ("phi3", "blk.3.ffn_up.weight", "model.layers.3.mlp.gate_up_proj.weight"),
        ("qwen3next", "blk.3.ssm_a", "model.layers.3.linear_attn.A_log"),
        ("minimax-m2", "blk.3.exp_probs_b.bias", "model.layers.3.mlp.e_score_correction_bias"),
        ("llama", "rope_freqs.weight", "rope_freqs.weight"),
        ("llama", "blk.3.nothing.weight", None),
        ("llama", "blk.x.attn_q.weight", None),
        ("llama", "attn_q.weight", None),
    ],
)
def test_gguf_names(architecture: str, name: str, canonical: str | None) -> None:
    """The architecture decides what a shared name means."""
    assert gguf_canonical(name, architecture) == canonical
