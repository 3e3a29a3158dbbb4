"""Healthy checkpoints that no tool made for us: mixtures of experts in FP8 and NVFP4, prediction layers, KV scales.

Each is a golden mixture of experts (random weights, compressed-tensors 4 bits) whose linears are stored again in
another format, with the config that the format's own tools write.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.formats import e2m1, fp8, fp8_block, nvfp4
from degarble.formats.interface import StoredModule
from degarble.target import open_target

Store = Callable[[str, Array], dict[str, Array]]
"""Module name and values [out, in] -> stored tensors."""

SHARD = "model.safetensors"


def _codes(codes: Array) -> Array:
    return codes.view(ml_dtypes.float8_e4m3fn)


def _amax(values: Array) -> Array:
    """A plausible calibrated activation scale: it differs from module to module."""
    return np.array(0.01 + float(np.abs(values).mean()), np.float32)


def block_fp8(name: str, values: Array) -> dict[str, Array]:
    """DeepSeek's FP8."""
    codes, scales = fp8_block.quantize(values)
    return {f"{name}.weight": _codes(codes), f"{name}.weight_scale_inv": scales}


def static_fp8(name: str, values: Array) -> dict[str, Array]:
    """Per-tensor FP8 with calibrated activations."""
    codes, scales = fp8.quantize(values, strategy="tensor")
    return {
        f"{name}.weight": _codes(codes),
        f"{name}.weight_scale": scales.reshape(1),
        f"{name}.input_scale": _amax(values).reshape(1),
    }


def modelopt_nvfp4(name: str, values: Array) -> dict[str, Array]:
    """ModelOpt's NVFP4."""
    codes, scales, divisor = nvfp4.quantize(values)
    return {
        f"{name}.weight": e2m1.pack(codes),
        f"{name}.weight_scale": scales.astype(ml_dtypes.float8_e4m3fn),
        f"{name}.weight_scale_2": np.array(1 / divisor, np.float32),
        f"{name}.input_scale": _amax(values),
    }


def _open(path: Path) -> tuple[Workspace, Evidence]:
    source = open_target(path)
    return Workspace(source), Evidence(source, Settings())


def _quantized(evidence: Evidence) -> list[StoredModule]:
    return [module for module in evidence.get("modules").values() if module.form.is_quantized]


def _store_again(workspace: Workspace, evidence: Evidence, store: Store) -> None:
    for module in _quantized(evidence):
        values = module.dequantize()
        for info in module.parts.values():
            workspace.drop(info.name)
        for name, array in store(module.name, values).items():
            workspace.add(SHARD, name, array)


def _turned(values: Array) -> Array:
    """The same statistics, other values: columns exchanged in runs of 16."""
    return np.ascontiguousarray(values.reshape(values.shape[0], -1, 16)[:, :, ::-1].reshape(values.shape))


def _add_prediction_layer(workspace: Workspace, evidence: Evidence, store: Store) -> None:
    """A copy of the last layer's structure behind it, and what joins it to the decoder."""
    for module in evidence.get("modules").values():
        if module.layer != 1:
            continue
        name = module.name.replace(".layers.1.", ".layers.2.")
        if module.form.is_quantized:
            for tensor, array in store(name, _turned(module.dequantize())).items():
                workspace.add(SHARD, tensor, array)
        else:
            for suffix, info in module.parts.items():
                array = evidence.get("reader").read(info)
                workspace.add(SHARD, f"{name}.{suffix}" if suffix else name, array)
    reader, tensors = evidence.get("reader"), evidence.get("tensors")
    norm, head = reader.read(tensors["model.norm.weight"]), reader.read(tensors["lm_head.weight"])
    embedding = reader.read(tensors["model.embed_tokens.weight"])
    width = norm.shape[0]
    joint = (np.random.default_rng(0).standard_normal((width, 2 * width)) * 0.02).astype(ml_dtypes.bfloat16)
    added = {"enorm": norm, "hnorm": norm, "shared_head.norm": norm, "eh_proj": joint, "shared_head.head": head}
    for name, array in {**added, "embed_tokens": embedding}.items():
        workspace.add(SHARD, f"model.layers.2.{name}.weight", array)


def deepseek_fp8(golden: Path, out: Path) -> Path:
    """DeepSeek-V3's own format, with its prediction layer."""
    workspace, evidence = _open(golden / "moe-deepseekv3-llmc-w4a16-g64")
    _add_prediction_layer(workspace, evidence, block_fp8)
    _store_again(workspace, evidence, block_fp8)
    workspace.json("config.json")["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [128, 128],
    }
    workspace.save(out)
    return out


def qwen_static_fp8(golden: Path, out: Path) -> Path:
    """llm-compressor's static FP8 with a calibrated KV cache."""
    workspace, evidence = _open(golden / "moe-qwen3moe-llmc-w4a16-g64")
    _store_again(workspace, evidence, static_fp8)
    for layer in (0, 1):
        for kind in ("k_scale", "v_scale"):
            scale = np.array([0.03 + layer / 100], ml_dtypes.bfloat16)
            workspace.add(SHARD, f"model.layers.{layer}.self_attn.{kind}", scale)
    dense = open_target(golden / "llm-compressor-fp8-static-kvcache")
    config = Evidence(dense, Settings()).get("json_files")["config.json"].object()["quantization_config"]
    own = workspace.json("config.json")["quantization_config"]
    workspace.json("config.json")["quantization_config"] = {**copy.deepcopy(config), "ignore": own["ignore"]}
    workspace.save(out)
    return out


def qwen_modelopt_nvfp4(golden: Path, out: Path) -> Path:
    """ModelOpt's NVFP4 with a quantised KV cache, its scales under the projections."""
    workspace, evidence = _open(golden / "moe-qwen3moe-llmc-w4a16-g64")
    _store_again(workspace, evidence, modelopt_nvfp4)
    for layer in (0, 1):
        for kind in ("k", "v"):
            scale = np.array(0.04 + layer / 100, np.float32)
            workspace.add(SHARD, f"model.layers.{layer}.self_attn.{kind}_proj.{kind}_scale", scale)
    config = workspace.json("config.json")
    config["quantization_config"] = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "ignore": ["lm_head", "model.layers.0.mlp.gate", "model.layers.1.mlp.gate"],
        "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        "config_groups": {
            "group_0": {
                "input_activations": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                "weights": {"dynamic": False, "num_bits": 4, "type": "float", "group_size": 16},
                "targets": ["Linear"],
            }
        },
    }
    workspace.save(out)
    return out


BUILDERS = (deepseek_fp8, qwen_static_fp8, qwen_modelopt_nvfp4)
