"""Checkpoints with the shapes of an 8B Llama (hidden 4096, intermediate 14336) in INT4, bf16 and FP8.

Values are those of a real small model, tiled to the shapes and quantised by the tool's own formats. From layer to layer
the hidden channels are shifted by groups of 128, in all modules alike: no two layers are equal, and the modules of each
still fit together. Without a real model they are random normals.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import affine, fp8
from degarble.formats.packing import pack_words

HIDDEN, INTER, KV, VOCAB, GROUP = 4096, 14336, 1024, 32000, 128
SHAPES = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INTER, HIDDEN),
    "mlp.up_proj": (INTER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTER),
}
NAMES = {np.dtype(np.int32): "I32", np.dtype(np.int64): "I64", np.dtype(ml_dtypes.bfloat16): "BF16",
         np.dtype(ml_dtypes.float8_e4m3fn): "F8_E4M3", np.dtype(np.float32): "F32"}  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_act": "silu",
    "hidden_size": HIDDEN, "intermediate_size": INTER, "vocab_size": VOCAB, "rms_norm_eps": 1e-5,
    "num_attention_heads": 64, "num_key_value_heads": 16, "head_dim": 64, "tie_word_embeddings": False,
    "max_position_embeddings": 8192,
}  # fmt: skip
WEIGHTS = {
    "int4": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": GROUP, "symmetric": True},
    "fp8": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
}
LABELS = {"int4": "pack-quantized", "fp8": "float-quantized"}


def make(folder: Path, form: str, num_bytes: int, real: Path | None) -> int:
    """Write a checkpoint of about `num_bytes` of `form` (int4 | fp8 | bf16); returns its bytes."""
    folder.mkdir(parents=True)
    layer = {name: list(_stored(form, name, _tiled(shape, name, real))) for name, shape in SHAPES.items()}
    layer_bytes = sum(array.nbytes for parts in layer.values() for _, array, _ in parts)
    embedding = _tiled((VOCAB, HIDDEN), "embed_tokens", real).astype(ml_dtypes.bfloat16)
    num_layers = max(2, (num_bytes - 2 * embedding.nbytes) // layer_bytes)
    ends = {"model.embed_tokens.weight": embedding, "lm_head.weight": embedding[::-1],
            "model.norm.weight": np.ones(HIDDEN, ml_dtypes.bfloat16)}  # fmt: skip
    written, index = 0, dict[str, str]()
    for number in range(num_layers):
        file = f"model-{number + 1:05d}-of-{num_layers:05d}.safetensors"
        tensors = dict(_shifted(layer, number)) | (ends if number == 0 else {})
        index |= dict.fromkeys(tensors, file)
        written += _write(folder / file, tensors)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    config = CONFIG | {"num_hidden_layers": int(num_layers)}
    if form in WEIGHTS:
        group = {"targets": ["Linear"], "weights": WEIGHTS[form]}
        config["quantization_config"] = {
            "quant_method": "compressed-tensors", "format": LABELS[form], "ignore": ["lm_head"],
            "config_groups": {"group_0": group}, "quantization_status": "compressed",
        }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return written


def _tiled(shape: tuple[int, int], name: str, real: Path | None) -> Array:
    """float32 of `shape` from the real model's tensor of that name in layer 10."""
    rng = np.random.default_rng(len(name))
    if real is None:
        return rng.standard_normal(shape, np.float32) * np.float32(0.02)
    from safetensors.numpy import load_file

    values = load_file(real / "model.safetensors")
    key = f"model.{name}.weight" if name == "embed_tokens" else f"model.layers.10.{name}.weight"
    tile = np.asarray(values[key]).astype(np.float32)
    repeats = [-(-want // have) for want, have in zip(shape, tile.shape, strict=True)]
    tiled = np.tile(tile, repeats)[: shape[0], : shape[1]]
    return np.asarray(tiled * (1 + 0.05 * rng.standard_normal(shape[1], np.float32)))


def _stored(form: str, name: str, weight: Array) -> Iterator[tuple[str, Array, tuple[int, int]]]:
    """(suffix, array, how far along (rows, columns) one group of hidden channels lies)"""
    is_reader = name not in ("self_attn.o_proj", "mlp.down_proj")
    if form == "bf16":
        yield "weight", weight.astype(ml_dtypes.bfloat16), (0, GROUP) if is_reader else (GROUP, 0)
    elif form == "fp8":
        codes, scales = fp8.quantize(weight, strategy="channel")
        yield "weight", codes.view(ml_dtypes.float8_e4m3fn), (0, GROUP) if is_reader else (GROUP, 0)
        yield "weight_scale", scales.astype(ml_dtypes.bfloat16), (0, 0) if is_reader else (GROUP, 0)
    else:
        codes, scales, _ = affine.quantize(weight, 4, GROUP, symmetric=True, scale_dtype=ml_dtypes.bfloat16)
        yield "weight_packed", pack_words(codes, 4), (0, GROUP // 8) if is_reader else (GROUP, 0)
        yield "weight_scale", scales, (0, 1) if is_reader else (GROUP, 0)
        yield "weight_shape", np.array(weight.shape, np.int64), (0, 0)


def _shifted(layer: dict[str, list[tuple[str, Array, tuple[int, int]]]], number: int) -> Iterator[tuple[str, Array]]:
    for norm in ("input_layernorm", "post_attention_layernorm"):
        yield f"model.layers.{number}.{norm}.weight", np.full(HIDDEN, 1 + number / 64, ml_dtypes.bfloat16)
    for name, parts in layer.items():
        for suffix, array, (rows, columns) in parts:
            shifted = np.roll(array, (rows * number, columns * number), axis=(0, 1)) if rows or columns else array
            yield f"model.layers.{number}.{name}.{suffix}", shifted


def _write(path: Path, tensors: dict[str, Array]) -> int:
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [at, at + array.nbytes],
        }
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            stream.write(np.ascontiguousarray(array).view(np.uint8).data)
    return at
