"""A tiny plain decoder with random weights, a key bias and a router bias: what no golden checkpoint has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import msgspec
import numpy as np

HIDDEN, HEADS, VOCAB, INTERMEDIATE = 64, 4, 256, 128
Arrays = dict[str, np.ndarray]


def write_qwen2(folder: Path, layers: int, change: Callable[[Arrays], None] = lambda arrays: None) -> Path:
    """Save a qwen2 of `layers` layers in bf16, after `change`."""
    rng = np.random.default_rng(0)
    arrays: Arrays = {
        "model.embed_tokens.weight": rng.normal(0, 0.05, (VOCAB, HIDDEN)),
        "lm_head.weight": rng.normal(0, 0.05, (VOCAB, HIDDEN)),
        "model.norm.weight": rng.normal(1, 0.1, HIDDEN),
    }
    for layer in range(layers):
        root = f"model.layers.{layer}."
        for name in ("q_proj", "k_proj", "v_proj"):
            arrays[f"{root}self_attn.{name}.weight"] = rng.normal(0, 0.05, (HIDDEN, HIDDEN))
            arrays[f"{root}self_attn.{name}.bias"] = rng.normal(0, 1, HIDDEN)
        arrays[f"{root}self_attn.o_proj.weight"] = rng.normal(0, 0.05, (HIDDEN, HIDDEN))
        for name in ("gate_proj", "up_proj"):
            arrays[f"{root}mlp.{name}.weight"] = rng.normal(0, 0.05, (INTERMEDIATE, HIDDEN))
        arrays[f"{root}mlp.down_proj.weight"] = rng.normal(0, 0.05, (HIDDEN, INTERMEDIATE))
        for name in ("input_layernorm", "post_attention_layernorm"):
            arrays[f"{root}{name}.weight"] = rng.normal(1, 0.1, HIDDEN)
    change(arrays)
    config = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN, "vocab_size": VOCAB,
        "intermediate_size": INTERMEDIATE, "num_hidden_layers": layers, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    vocab = {f"word{number}": number for number in range(VOCAB - 16)}  # the last 16 rows are padding
    tokenizer = {
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
        "added_tokens": [{"id": 0, "content": "<pad>"}],
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    _save(folder / "model.safetensors", arrays)
    return folder


def _save(path: Path, arrays: Arrays) -> None:
    entries, data, at = {}, [], 0
    for name, array in arrays.items():
        raw = array.astype(ml_dtypes.bfloat16).tobytes()
        entries[name] = {"dtype": "BF16", "shape": list(array.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    header = msgspec.json.encode(entries)
    header += b" " * (-len(header) % 8)
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"".join(data))
