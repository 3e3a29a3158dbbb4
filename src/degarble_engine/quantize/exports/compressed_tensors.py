"""compressed-tensors, the layout of llm-compressor and vLLM: `pack-quantized`, `int-quantized` or `float-quantized`.

    weights only             weight_packed, weight_scale, weight_zero_point (asymmetric), weight_shape
    integers, activations    weight int8, weight_scale [out, 1]
    E4M3                     weight, weight_scale [out, 1], or [row blocks, column blocks] under strategy `block`;
                             static: weight_scale [1] and input_scale [1]
    E2M1                     weight_packed uint8, weight_scale E4M3 or exponent bytes; NVFP4: weight_global_scale [1] and
                             input_global_scale [1], both of which divide

Static groups found by activation order store no g_idx: `actorder` is `static`, and a reader needs nothing for it.
Source: compressed-tensors `quantization/quant_args.py`, `quant_config.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import torch

from degarble.checkpoint.tensor_data import Array
from degarble.formats import e2m1, e8m0
from degarble.formats.compressed_pack import pack_zeros
from degarble.formats.packing import pack_words
from degarble_engine.quantize.export import Export
from degarble_engine.quantize.fp4_grid import E2M1_MAX, Fp4Grid
from degarble_engine.quantize.grid import E4M3_MAX, Grid, IntGrid
from degarble_engine.quantize.scheme import QuantScheme

SCALE_DTYPES = {"e4m3": "torch.float8_e4m3fn", "e8m0": "torch.uint8"}
NUMPY = {
    torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
    torch.float16: np.dtype(np.float16),
    torch.float32: np.dtype(np.float32),
}


class CompressedTensors(Export):
    """`--export compressed-tensors`, the default."""

    name: ClassVar[str] = "compressed-tensors"
    holds_several: ClassVar[bool] = True

    def refuses(self, scheme: QuantScheme) -> str | None:
        """See Export.refuses."""
        return None

    def tensors(self, grid: Grid, codes: Array, scheme: QuantScheme, dtype: torch.dtype) -> Mapping[str, Array]:
        """See Export.tensors."""
        if isinstance(grid, Fp4Grid):
            return _fp4_tensors(grid, codes)
        scale = grid.scales.numpy().astype(NUMPY[dtype])
        if scheme.strategy == "tensor":
            return {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale": scale.reshape(1)}
        if scheme.type == "float":
            return {"weight": codes.view(ml_dtypes.float8_e4m3fn), "weight_scale": scale}
        middle = 1 << (scheme.num_bits - 1)
        if scheme.activation_bits is not None:
            return {"weight": (codes.astype(np.int16) - middle).astype(np.int8), "weight_scale": scale}
        found: dict[str, Array] = {
            "weight_packed": pack_words(codes, scheme.num_bits),
            "weight_scale": scale,
            "weight_shape": np.array(codes.shape, np.int64),
        }
        if not scheme.symmetric:
            assert isinstance(grid, IntGrid)
            found["weight_zero_point"] = pack_zeros(grid.zeros.numpy().astype(np.uint8), scheme.num_bits)
        return found

    def input_tensors(self, scheme: QuantScheme, largest: float) -> Mapping[str, Array]:
        """See Export.input_tensors."""
        largest = largest or 1.0
        if scheme.num_bits == 4:
            return {"input_global_scale": np.array([E4M3_MAX * E2M1_MAX / largest], np.float32)}
        return {"input_scale": np.array([largest / E4M3_MAX], np.float32)}

    def config(
        self, scheme: QuantScheme, ignore: Sequence[str], act_order: bool, others: Mapping[QuantScheme, Sequence[str]]
    ) -> dict[str, Any]:
        """See Export.config."""
        groups = {"group_0": _group(scheme, ["Linear"], act_order)}
        for number, (other, names) in enumerate(others.items(), 1):
            groups[f"group_{number}"] = _group(other, names, act_order)
        labels = {group["format"] for group in groups.values()}
        return {
            "quant_method": "compressed-tensors",
            "format": labels.pop() if len(labels) == 1 else "mixed-precision",
            "quantization_status": "compressed",
            "config_groups": groups,
            "ignore": list(ignore),
            "kv_cache_scheme": None,
        }


def _fp4_tensors(grid: Fp4Grid, codes: Array) -> dict[str, Array]:
    found: dict[str, Array] = {"weight_packed": e2m1.pack(codes)}
    stored = grid.stored.numpy()
    if grid.global_scale is None:
        return found | {"weight_scale": e8m0.encode(stored)}
    return found | {
        "weight_scale": stored.astype(ml_dtypes.float8_e4m3fn),
        "weight_global_scale": np.array([grid.global_scale], np.float32),
    }


def _group(scheme: QuantScheme, targets: Sequence[str], act_order: bool) -> dict[str, Any]:
    weights: dict[str, Any] = {
        "num_bits": scheme.num_bits,
        "type": scheme.type,
        "symmetric": scheme.symmetric,
        "strategy": "tensor_group" if scheme.scale_type == "e4m3" else scheme.strategy,
        "group_size": scheme.group_size,
        "block_structure": list(scheme.block_shape) if scheme.block_shape else None,
        "dynamic": False,
        **({"scale_dtype": SCALE_DTYPES[scheme.scale_type]} if scheme.scale_type != "float" else {}),
        "actorder": "static" if act_order and scheme.strategy == "group" else None,
    }
    return {
        "targets": list(targets),
        "weights": weights,
        "input_activations": _activations(scheme),
        "output_activations": None,
        "format": _label(scheme),
    }


def _label(scheme: QuantScheme) -> str:
    if scheme.scale_type != "float":
        return f"{'nvfp4' if scheme.scale_type == 'e4m3' else 'mxfp4'}-pack-quantized"
    if scheme.type == "float":
        return "float-quantized"
    return "pack-quantized" if scheme.activation_bits is None else "int-quantized"


def _activations(scheme: QuantScheme) -> dict[str, Any] | None:
    """One scale a token, made while serving; for block weights one for 128 inputs of a token, as DeepSeek's kernels."""
    if scheme.activation_bits is None:
        return None
    if scheme.scale_type != "float":
        return {
            "num_bits": 4,
            "type": "float",
            "symmetric": True,
            "strategy": "tensor_group" if scheme.is_static else "group",
            "group_size": scheme.group_size,
            "dynamic": "local" if scheme.is_static else True,
            "scale_dtype": SCALE_DTYPES[scheme.scale_type],
        }
    if scheme.is_static:
        return {
            "num_bits": 8,
            "type": "float",
            "symmetric": True,
            "strategy": "tensor",
            "group_size": None,
            "dynamic": False,
        }
    is_block = scheme.strategy == "block"
    return {
        "num_bits": scheme.activation_bits,
        "type": scheme.type,
        "symmetric": True,
        "strategy": "group" if is_block else "token",
        "group_size": scheme.block_shape[1] if is_block and scheme.block_shape else None,
        "dynamic": True,
    }
