"""A folder with the headers of a DeepSeek-V3-sized checkpoint: 163 shards, 91,991 tensors, sparse data files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

SHARDS = 163
CONFIG = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "attention_bias": False,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "first_k_dense_replace": 3,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 163840,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 128,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "quantization_config": {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    "rms_norm_eps": 1e-06,
    "rope_scaling": {
        "beta_fast": 32,
        "beta_slow": 1,
        "factor": 40,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 10000,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "tie_word_embeddings": False,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 129280,
}

type_sizes = {"F8_E4M3": 1, "BF16": 2, "F32": 4}
Entry = tuple[str, str, list[int]]


def linear(name: str, rows: int, cols: int) -> Iterator[Entry]:
    """An FP8 weight with its block scales."""
    yield f"{name}.weight", "F8_E4M3", [rows, cols]
    yield f"{name}.weight_scale_inv", "F32", [-(-rows // 128), -(-cols // 128)]


def mlp(name: str, width: int) -> Iterator[Entry]:
    """A gated MLP."""
    yield from linear(f"{name}.gate_proj", width, 7168)
    yield from linear(f"{name}.up_proj", width, 7168)
    yield from linear(f"{name}.down_proj", 7168, width)


def layer(number: int) -> Iterator[Entry]:
    """One decoder layer."""
    name = f"model.layers.{number}"
    yield f"{name}.input_layernorm.weight", "BF16", [7168]
    yield f"{name}.post_attention_layernorm.weight", "BF16", [7168]
    yield from linear(f"{name}.self_attn.q_a_proj", 1536, 7168)
    yield f"{name}.self_attn.q_a_layernorm.weight", "BF16", [1536]
    yield from linear(f"{name}.self_attn.q_b_proj", 128 * 192, 1536)
    yield from linear(f"{name}.self_attn.kv_a_proj_with_mqa", 576, 7168)
    yield f"{name}.self_attn.kv_a_layernorm.weight", "BF16", [512]
    yield from linear(f"{name}.self_attn.kv_b_proj", 128 * 256, 512)
    yield from linear(f"{name}.self_attn.o_proj", 7168, 128 * 128)
    if number < 3:
        yield from mlp(f"{name}.mlp", 18432)
        return
    yield f"{name}.mlp.gate.weight", "BF16", [256, 7168]
    yield f"{name}.mlp.gate.e_score_correction_bias", "F32", [256]
    for expert in range(256):
        yield from mlp(f"{name}.mlp.experts.{expert}", 2048)
    yield from mlp(f"{name}.mlp.shared_experts", 2048)


def entries() -> Iterator[Entry]:
    """Every tensor of the model, MTP layer included."""
    yield "model.embed_tokens.weight", "BF16", [129280, 7168]
    for number in range(62):
        yield from layer(number)
    mtp = "model.layers.61"
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        yield f"{mtp}.{norm}.weight", "BF16", [7168]
    yield f"{mtp}.eh_proj.weight", "BF16", [7168, 14336]
    yield f"{mtp}.embed_tokens.weight", "BF16", [129280, 7168]
    yield f"{mtp}.shared_head.head.weight", "BF16", [129280, 7168]
    yield "model.norm.weight", "BF16", [7168]
    yield "lm_head.weight", "BF16", [129280, 7168]


def make(folder: Path) -> int:
    """Write the folder; returns the number of tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    everything = list(entries())
    per_shard = -(-len(everything) // SHARDS)
    weight_map: dict[str, str] = {}
    total = 0
    for number in range(SHARDS):
        file = f"model-{number + 1:05d}-of-{SHARDS:06d}.safetensors"
        part = everything[number * per_shard : (number + 1) * per_shard]
        total += write_shard(folder / file, part)
        weight_map |= {name: file for name, _, _ in part}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    return len(everything)


def write_shard(path: Path, part: list[Entry]) -> int:
    """A real header over a sparse file."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    cursor = 0
    for name, dtype, shape in part:
        size = type_sizes[dtype]
        for axis in shape:
            size *= axis
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [cursor, cursor + size]}
        cursor += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        stream.truncate(8 + len(text) + cursor)
    return cursor


if __name__ == "__main__":
    print(make(Path(sys.argv[1])), "tensors")
