"""A DeepSeek as GGUF: kv_b_proj in one piece (older files) or split by head (newer), against transformers' own logits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.numerics.test_walk import TOLERANCE, distance, logits_of
from tests.degarble_engine.tiny_models import folder, tiny_batch, wanted_logits

gguf = pytest.importorskip("gguf")
NAMES = {
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_b_proj": "attn_q_b", "self_attn.q_a_layernorm": "attn_q_a_norm",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}  # fmt: skip
TOP = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
       "lm_head.weight": "output.weight"}  # fmt: skip


def as_gguf(source: Path, out: Path, *, split: bool) -> Path:
    """What llama.cpp's converter makes of it, unquantised."""
    config, weights = json.loads((source / "config.json").read_text()), load_file(source / "model.safetensors")
    writer = gguf.GGUFWriter(out, "deepseek2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(1 if split else config["num_attention_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_q_lora_rank(config["q_lora_rank"])
    writer.add_kv_lora_rank(config["kv_lora_rank"])
    writer.add_key_length_mla(config["qk_nope_head_dim"] + config["qk_rope_head_dim"])
    writer.add_value_length_mla(config["v_head_dim"])
    writer.add_rope_dimension_count(config["qk_rope_head_dim"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_leading_dense_block_count(config["first_k_dense_replace"])
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    for name, array in renamed(weights, config, split).items():
        writer.add_tensor(name, np.ascontiguousarray(array))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out


def renamed(weights: dict[str, np.ndarray], config: dict[str, int], split: bool) -> dict[str, np.ndarray]:
    found = {TOP[name]: weights[name] for name in TOP}
    heads, nope, value = config["num_attention_heads"], config["qk_nope_head_dim"], config["v_head_dim"]
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, short in NAMES.items():
            if f"{prefix}{name}.weight" in weights:
                found[f"blk.{layer}.{short}.weight"] = weights[f"{prefix}{name}.weight"]
        joint = weights[f"{prefix}self_attn.kv_b_proj.weight"]
        if split:
            by_head = joint.reshape(heads, nope + value, -1)
            found[f"blk.{layer}.attn_k_b.weight"] = by_head[:, :nope].swapaxes(1, 2)
            found[f"blk.{layer}.attn_v_b.weight"] = by_head[:, nope:]
        else:
            found[f"blk.{layer}.attn_kv_b.weight"] = joint
        bias = weights.get(f"{prefix}mlp.gate.e_score_correction_bias")
        if bias is not None:
            found[f"blk.{layer}.exp_probs_b.bias"] = bias
        for leaf in ("gate", "up", "down"):
            names = [f"{prefix}mlp.experts.{number}.{leaf}_proj.weight" for number in range(config["n_routed_experts"])]
            if names[0] in weights:
                found[f"blk.{layer}.ffn_{leaf}_exps.weight"] = np.stack([weights[name] for name in names])
    return found


@pytest.mark.parametrize("split", [False, True])
def test_logits_of_a_deepseek_in_gguf(split: bool, tmp_path: Path) -> None:
    path = folder("deepseek-v3")
    made = as_gguf(path, tmp_path / "model.gguf", split=split)
    assert distance(logits_of(WalkedModel.open(str(made))), wanted_logits(path, tiny_batch())) < TOLERANCE
