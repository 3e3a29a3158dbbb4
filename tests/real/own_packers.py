"""The real model in four quantised forms, written by our own packers: healthy by construction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from degarble.checkpoint.folder import LocalFolder
from degarble.checkpoint.tensor_data import Array
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.formats import affine, awq, compressed_pack, fp8_block, gptq, packing

GROUP = 64
"""576 columns are no multiple of 128."""


def pack_gptq(weight: Array) -> dict[str, Array]:
    """GPTQ v1, asymmetric."""
    codes, scales, zeros = affine.quantize(weight, 4, GROUP, symmetric=False)
    return {
        "qweight": gptq.pack(codes, 4),
        "qzeros": gptq.pack_zeros(zeros, 4),
        "scales": np.ascontiguousarray(scales.T),
        "g_idx": (np.arange(weight.shape[1]) // GROUP).astype(np.int32),
    }


def pack_awq(weight: Array) -> dict[str, Array]:
    """AWQ GEMM."""
    codes, scales, zeros = affine.quantize(weight, 4, GROUP, symmetric=False)
    return {
        "qweight": awq.pack(np.ascontiguousarray(codes.T)),
        "qzeros": awq.pack(np.ascontiguousarray(zeros.T)),
        "scales": np.ascontiguousarray(scales.T),
    }


def pack_compressed(weight: Array) -> dict[str, Array]:
    """compressed-tensors, packed, asymmetric."""
    codes, scales, zeros = affine.quantize(weight, 4, GROUP, symmetric=False, scale_dtype=ml_dtypes.bfloat16)
    return {
        "weight_packed": packing.pack_words(codes, 4),
        "weight_scale": scales,
        "weight_zero_point": compressed_pack.pack_zeros(zeros, 4),
        "weight_shape": np.array(weight.shape, np.int64),
    }


def pack_fp8(weight: Array) -> dict[str, Array]:
    """DeepSeek's block FP8, with ragged edges."""
    codes, scales = fp8_block.quantize(weight)
    return {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale_inv": scales}


COMPRESSED_WEIGHTS = {
    "num_bits": 4,
    "type": "int",
    "symmetric": False,
    "strategy": "group",
    "group_size": GROUP,
    "dynamic": False,
    "actorder": None,
}
GPTQ_LIKE = {"bits": 4, "group_size": GROUP}
FORMS: dict[str, tuple[Callable[[Array], dict[str, Array]], dict[str, Any]]] = {
    "gptq": (
        pack_gptq,
        {**GPTQ_LIKE, "quant_method": "gptq", "desc_act": False, "sym": False, "checkpoint_format": "gptq"},
    ),
    "awq": (
        pack_awq,
        {**GPTQ_LIKE, "quant_method": "awq", "zero_point": True, "version": "gemm", "modules_to_not_convert": None},
    ),
    "compressed-tensors": (
        pack_compressed,
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "quantization_status": "compressed",
            "config_groups": {
                "group_0": {"targets": ["Linear"], "weights": COMPRESSED_WEIGHTS, "format": "pack-quantized"}
            },
            "ignore": ["lm_head"],
        },
    ),
    "fp8": (
        pack_fp8,
        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
    ),
}


def write_form(form: str, model: Path, out: Path) -> None:
    """Quantise every linear of the bf16 folder `model` into the new folder `out`."""
    pack, declaration = FORMS[form]
    source = LocalFolder(model)
    work = Workspace(source)
    for module in Evidence(source, Settings()).get("modules").linears():
        if module.kind != "linear" or module.payload is None:
            continue
        shard = work.shard(module.payload.file)
        parts = pack(module.dequantize())
        shard.drop(module.payload.name)
        for suffix, array in parts.items():
            work.add(shard.file, f"{module.name}.{suffix}", array)
    work.json("config.json")["quantization_config"] = declaration
    work.save(out)
