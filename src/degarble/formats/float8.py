"""8-bit floats: their codes as bytes, and which layout a module with an F8 `weight` has.

    E4M3FN  s eeee mmm   largest 448, NaN 0x7F and 0xFF, no infinity       (almost every checkpoint)
    E5M2    s eeeee mm   largest 57344, infinities and NaNs as in IEEE
    *FNUZ   the same bits with another bias: NaN only 0x80, every value half of its FN twin (AMD MI300)

A cast above the largest value gives NaN in some libraries and saturates in others, so `encode` clips first.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import ml_dtypes
import numpy as np

from degarble.checkpoint.interface import TensorInfo, num_elements
from degarble.checkpoint.tensor_data import DTYPES, Array
from degarble.formats import e8m0
from degarble.formats.scheme import Scheme

FLOAT8 = frozenset({"F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})
SCALE_DTYPES = frozenset({"F32", "BF16", "F16", "F64"})
MX_GROUP = 32
MIN_LOOKED_UP = 1 << 16
"""Codes from which a table of all pairs is worth its making."""

METHODS = frozenset({"fp8", "fbgemm_fp8"})
"""Declared methods whose codes are 8-bit floats whatever else the config says."""


def largest(dtype: str) -> float:
    """The largest finite value of a safetensors 8-bit float dtype."""
    return float(ml_dtypes.finfo(DTYPES[dtype]).max)  # type: ignore[no-untyped-call]


def decode(codes: Array, dtype: str) -> Array:
    """Raw bytes -> float32. Large arrays by look-up, two codes at a time, which is ten times as fast as a cast."""
    stored = np.ascontiguousarray(codes).view(np.uint8)
    if stored.size < MIN_LOOKED_UP or stored.shape[-1] % 2:
        return np.asarray(stored.view(DTYPES[dtype]).astype(np.float32))
    return np.asarray(_pairs(dtype).take(stored.view("<u2"), mode="clip").view(np.float32))


@lru_cache(maxsize=len(FLOAT8))
def _pairs(dtype: str) -> Array:
    """[65536] the two float32 values of every pair of codes, as 64 bits."""
    values = np.arange(256, dtype=np.uint8).view(DTYPES[dtype]).astype(np.float32)
    pairs = np.empty((256, 256, 2), np.float32)  # [second code, first code]
    pairs[..., 0], pairs[..., 1] = values, values[:, None]
    return pairs.view(np.uint64).reshape(-1)


def encode(values: Array, dtype: str) -> Array:
    """float32 -> raw bytes, to nearest even, saturating. NaN stays NaN."""
    limit = np.float32(largest(dtype))
    clipped = np.clip(np.asarray(values, np.float32), -limit, limit)
    return np.asarray(clipped.astype(DTYPES[dtype]).view(np.uint8))


def layout_of(parts: Mapping[str, TensorInfo], declared: Scheme | None) -> tuple[str, int]:
    """Which format file owns a module with an 8-bit float `weight`, and how sure that is; ("", 0) for none.

    One function decides for all of them, so that exactly one claims.
    """
    payload = parts.get("weight")
    if payload is None or payload.dtype not in FLOAT8:
        return "", 0
    if "weight_scale_inv" in parts:
        return ("mxfp8" if is_mx(payload, parts["weight_scale_inv"], declared) else "fp8_block"), 3
    scale = parts.get("weight_scale")
    if scale is None:
        return _without_scale(parts, declared)
    if is_mx(payload, scale, declared):
        return "mxfp8", 3
    blocks = is_grid(payload, scale) or (declared is not None and declared.strategy == "block")
    return ("compressed_fp8_block" if blocks else "fp8"), 3


def _without_scale(parts: Mapping[str, TensorInfo], declared: Scheme | None) -> tuple[str, int]:
    """The scale is gone; what the config says, or another companion, tells whose it was."""
    strategy = declared.strategy if declared is not None else None
    if declared is not None and declared.method == "fp8":
        return ("fp8" if strategy in ("tensor", "channel") else "fp8_block"), 2
    if declared is not None and (declared.method in METHODS or (declared.type, declared.num_bits) == ("float", 8)):
        return {"block": "compressed_fp8_block", "group": "mxfp8"}.get(strategy or "", "fp8"), 2
    if "activation_scale" in parts:
        return "fp8_block", 2
    return ("fp8", 2) if "input_scale" in parts else ("", 0)


def is_mx(payload: TensorInfo, scale: TensorInfo, declared: Scheme | None) -> bool:
    """Exponent bytes, one for every 32 inputs of a row (the number of columns may be the fault)."""
    if scale.dtype not in e8m0.DTYPES or len(scale.shape) != len(payload.shape) or len(scale.shape) < 2:
        return False
    if declared is not None and declared.group_size == MX_GROUP and declared.strategy != "block":
        return True
    return scale.shape[:-1] == payload.shape[:-1] and scale.shape[-1] > 1


def squeezed(scale: tuple[int, ...], shape: tuple[int, ...]) -> tuple[int, ...]:
    """ModelOpt's [row blocks, 1, col blocks, 1] as [row blocks, col blocks]; any other shape as it is."""
    if len(shape) == 2 and len(scale) == 4 and scale[1] == scale[3] == 1:
        return scale[0], scale[2]
    return scale


def is_grid(payload: TensorInfo, scale: TensorInfo) -> bool:
    """A grid of several scales that is not one per output row, in either orientation."""
    shape = squeezed(scale.shape, payload.shape)
    if len(shape) != len(payload.shape) or len(shape) < 2 or num_elements(shape) <= 1:
        return False
    rows, columns = shape[-2:]
    out, in_features = payload.shape[-2:]
    if columns == 1:
        return rows not in (1, out)
    return rows != 1 or columns != out or columns == -(-in_features // 128)
