"""Stored layouts of healthy forms: what a module's tensors are called, and what the config says about them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from scripts.calibration.rounding import Rounded, Rounding

from degarble.checkpoint.tensor_data import Array
from degarble.formats import (
    awq,
    compressed_pack,
    e2m1,
    float8,
    fp8,
    fp8_block,
    gptq,
    modelopt_int4,
    mxfp4,
    mxfp8,
    packing,
)
from degarble.formats.nvfp4 import GROUP as NVFP4_GROUP
from degarble.formats.nvfp4 import LARGEST

Parts = dict[str, Array]
Declaration = dict[str, Any]
E4M3 = ml_dtypes.float8_e4m3fn
BF16 = ml_dtypes.bfloat16
LARGEST_INPUT = 20.0
"""Stands for calibration; no rule here looks at it."""


def pack_gptq(found: Rounded, how: Rounding, *, v2: bool = False) -> Parts:
    """GPTQ v1 or v2."""
    return {
        "qweight": gptq.pack(found.codes, how.bits),
        "qzeros": gptq.pack_zeros(found.zeros, how.bits, v2=v2),
        "scales": np.ascontiguousarray(found.scales.T),
        "g_idx": found.index,
    }


def pack_gptq_v2(found: Rounded, how: Rounding) -> Parts:
    """Zero points as they are."""
    return pack_gptq(found, how, v2=True)


def pack_awq(found: Rounded, how: Rounding) -> Parts:
    """AWQ GEMM, 4 bits."""
    return {
        "qweight": awq.pack(np.ascontiguousarray(found.codes.T)),
        "qzeros": awq.pack(np.ascontiguousarray(found.zeros.T)),
        "scales": np.ascontiguousarray(found.scales.T),
    }


def pack_compressed(found: Rounded, how: Rounding) -> Parts:
    """compressed-tensors `pack-quantized`."""
    parts = {
        "weight_packed": packing.pack_words(found.codes, how.bits),
        "weight_scale": found.scales,
        "weight_shape": np.array(found.codes.shape, np.int64),
    }
    if not how.is_symmetric:
        parts["weight_zero_point"] = compressed_pack.pack_zeros(found.zeros, how.bits)
    if how.order == "stored":
        parts["weight_g_idx"] = found.index
    return parts


def pack_int8(found: Rounded, how: Rounding) -> Parts:
    """compressed-tensors `int-quantized`."""
    parts = {"weight": (found.codes.astype(np.int16) - 128).astype(np.int8), "weight_scale": found.scales}
    if not how.is_symmetric:
        parts["weight_zero_point"] = (found.zeros - 128).astype(np.int8)
    return parts


def pack_modelopt(found: Rounded, how: Rounding) -> Parts:
    """ModelOpt W4A16_AWQ."""
    return {
        "weight": modelopt_int4.pack((found.codes.astype(np.int16) - 8).astype(np.int8)),
        "weight_scale": found.scales.astype(np.float32),
    }


def pack_mlx(found: Rounded, how: Rounding) -> Parts:
    """MLX; the offset is the value of code 0."""
    offsets = -found.zeros.astype(np.float32) * found.scales.astype(np.float32)
    words = packing.pack_words(found.codes, how.bits).view(np.uint32)
    return {"weight": words, "scales": found.scales, "biases": offsets.astype(found.scales.dtype)}


def declare_gptq(how: Rounding, *, version: str = "gptq") -> Declaration:
    """GPTQModel's keys."""
    return {
        "quant_method": "gptq",
        "bits": how.bits,
        "group_size": how.group or -1,
        "desc_act": how.order == "stored",
        "sym": how.is_symmetric,
        "checkpoint_format": version,
    }


def declare_gptq_v2(how: Rounding) -> Declaration:
    """The same with the other label."""
    return declare_gptq(how, version="gptq_v2")


def declare_awq(how: Rounding) -> Declaration:
    """AutoAWQ's keys."""
    return {"quant_method": "awq", "bits": 4, "group_size": how.group, "zero_point": True, "version": "gemm"}


def declare_modelopt(how: Rounding) -> Declaration:
    """ModelOpt's keys."""
    return {"quant_method": "modelopt", "quant_algo": "W4A16_AWQ", "group_size": how.group, "ignore": ["lm_head"]}


def declare_mlx(how: Rounding) -> Declaration:
    """MLX's keys."""
    return {"group_size": how.group, "bits": how.bits, "mode": "affine"}


def declare_compressed(how: Rounding) -> Declaration:
    """compressed-tensors' keys for packed codes."""
    return _compressed(_integers(how), "pack-quantized")


def declare_int8(how: Rounding) -> Declaration:
    """compressed-tensors' keys for bytes."""
    return _compressed(_integers(how), "int-quantized")


def _integers(how: Rounding) -> Declaration:
    return {
        "num_bits": how.bits,
        "type": "int",
        "symmetric": how.is_symmetric,
        "strategy": "group" if how.group else "channel",
        "group_size": how.group or None,
        "dynamic": False,
        "actorder": {"stored": "group", "static": "weight"}.get(how.order),
    }


def _compressed(weights: Declaration, label: str) -> Declaration:
    return {
        "quant_method": "compressed-tensors",
        "format": label,
        "quantization_status": "compressed",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "format": label}},
        "ignore": ["lm_head"],
    }


def fp8_tensor(weight: Array, amax: float) -> Parts:
    """One scale a matrix."""
    codes, scales = fp8.quantize(weight, strategy="tensor")
    return {"weight": codes.view(E4M3), "weight_scale": scales.reshape(1)}


def fp8_channel(weight: Array, amax: float) -> Parts:
    """One scale a row."""
    codes, scales = fp8.quantize(weight, strategy="channel")
    return {"weight": codes.view(E4M3), "weight_scale": scales.astype(BF16)}


def fp8_grid(weight: Array, amax: float) -> Parts:
    """DeepSeek's blocks."""
    codes, scales = fp8_block.quantize(weight)
    return {"weight": codes.view(E4M3), "weight_scale_inv": scales}


def fp8_grid_ue8m0(weight: Array, amax: float) -> Parts:
    """The same with powers of two."""
    codes, scales = fp8_block.quantize(weight, power_of_two=True)
    return {"weight": codes.view(E4M3), "weight_scale_inv": scales}


def mx4(weight: Array, amax: float) -> Parts:
    """MXFP4."""
    codes, exponents = mxfp4.quantize(weight)
    return {"weight_packed": _nibbles(codes), "weight_scale": exponents}


def mx8(weight: Array, amax: float) -> Parts:
    """MXFP8."""
    codes, exponents = mxfp8.quantize(weight)
    return {"weight": codes.view(E4M3), "weight_scale": exponents}


def nv4(weight: Array, amax: float) -> Parts:
    """NVFP4 of compressed-tensors; `amax`: the largest weight of the modules that engines join."""
    codes, scales, divisor = _nv4(weight, amax)
    return {"weight_packed": codes, "weight_scale": scales, "weight_global_scale": np.array([divisor], np.float32)}


def nv4_modelopt(weight: Array, amax: float) -> Parts:
    """NVFP4 of ModelOpt."""
    codes, scales, divisor = _nv4(weight, amax)
    return {
        "weight": codes,
        "weight_scale": scales,
        "weight_scale_2": np.array(1 / divisor, np.float32),
        "input_scale": np.array(LARGEST_INPUT / LARGEST, np.float32),
    }


def _nv4(weight: Array, amax: float) -> tuple[Array, Array, float]:
    """Codes in nibbles, block scales as E4M3, and the divisor that belongs to `amax`."""
    blocks = weight.reshape(len(weight), -1, NVFP4_GROUP)
    divisor = np.float32(LARGEST / amax)
    ideal = np.maximum(np.abs(blocks).max(axis=-1) / np.float32(e2m1.MAX) * divisor, np.float32(2**-9))
    stored = float8.encode(ideal, "F8_E4M3")
    codes = e2m1.encode(blocks / (float8.decode(stored, "F8_E4M3") / divisor)[..., None]).reshape(weight.shape)
    return _nibbles(codes), stored.view(E4M3), float(divisor)


def _nibbles(codes: Array) -> Array:
    return np.ascontiguousarray(codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def _float_weights(bits: int, strategy: str, group: int | None) -> Declaration:
    return {
        "num_bits": bits,
        "type": "float",
        "symmetric": True,
        "strategy": strategy,
        "group_size": group,
        "dynamic": False,
    }


DEEPSEEK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}

Packer = Callable[[Rounded, Rounding], Parts]
INTEGERS: Mapping[str, tuple[Packer, Callable[[Rounding], Declaration]]] = {
    "gptq": (pack_gptq, declare_gptq),
    "gptq_v2": (pack_gptq_v2, declare_gptq_v2),
    "awq": (pack_awq, declare_awq),
    "compressed": (pack_compressed, declare_compressed),
    "int8": (pack_int8, declare_int8),
    "modelopt": (pack_modelopt, declare_modelopt),
    "mlx": (pack_mlx, declare_mlx),
}
FLOATS: Mapping[str, tuple[Callable[[Array, float], Parts], Declaration]] = {
    "fp8-tensor": (fp8_tensor, _compressed(_float_weights(8, "tensor", None), "float-quantized")),
    "fp8-channel": (fp8_channel, _compressed(_float_weights(8, "channel", None), "float-quantized")),
    "fp8-block": (fp8_grid, DEEPSEEK),
    "fp8-block-ue8m0": (fp8_grid_ue8m0, {**DEEPSEEK, "scale_fmt": "ue8m0"}),
    "mxfp4": (mx4, _compressed(_float_weights(4, "group", 32), "mxfp4-pack-quantized")),
    "mxfp8": (mx8, _compressed(_float_weights(8, "group", 32), "mxfp8-quantized")),
    "nvfp4": (nv4, _compressed(_float_weights(4, "tensor_group", 16), "nvfp4-pack-quantized")),
    "nvfp4-modelopt": (nv4_modelopt, {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}),
}
"""Layout -> (weight, largest weight of what engines join) -> parts, and the config."""
