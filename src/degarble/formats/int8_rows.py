"""Symmetric int8 with one scale per output row, the arithmetic that bitsandbytes, quanto and torchao share.

w[o, i] = code[o, i] * scale[o]        code in -128..127, scale = amax / 127
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

LIMIT = 127


def quantize(weight: Array) -> tuple[Array, Array]:
    """[out, in] -> int8 codes and float32 scales [out, 1]; an all-zero row gets scale 1."""
    amax = np.abs(weight).max(axis=-1, keepdims=True).astype(np.float32)
    scales = np.where(amax > 0, amax / np.float32(LIMIT), np.float32(1)).astype(np.float32)
    return np.clip(np.rint(weight / scales), -LIMIT, LIMIT).astype(np.int8), scales


def dequantize(codes: Array, scales: Array) -> Array:
    """int8 codes [out, in] and scales [out, 1] -> float32."""
    return np.asarray(codes.astype(np.float32) * scales.astype(np.float32))
