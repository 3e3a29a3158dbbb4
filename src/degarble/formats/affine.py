"""Affine integers: the arithmetic that GPTQ, AWQ, compressed-tensors and ModelOpt share, whatever their packing.

    w[o, i] = (code[o, i] - zero[o, g]) * scale[o, g]      g = group_index[i]

Codes are unsigned; a symmetric scheme has its zero in the middle (8 of 0..15), so the range reaches one step further
down than up. The difference is an exact integer and the product is rounded once, in float32: a tool that multiplies in
bfloat16 or float16 gets the same value after a cast, as their significands leave room for 8 more bits.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

MIN_SCALE = float(np.finfo(np.float16).smallest_normal)
"""An all-zero group gets this scale: zero would make the codes undefined, less is flushed to zero in fp16."""


def group_of(in_features: int, group_size: int | None) -> Array:
    """[in] int32: i // group_size; all zero for one scale a row."""
    return (np.arange(in_features) // (group_size or max(in_features, 1))).astype(np.int32)


def quantize(
    weight: Array, num_bits: int, group_size: int, *, symmetric: bool, scale_dtype: type = np.float16
) -> tuple[Array, Array, Array]:
    """Round to nearest: [out, in] -> codes [out, in] uint8, scales [out, groups], zeros [out, groups] int32.

    Scales are rounded to the stored dtype first, so codes are the nearest to what a reader will compute. The last group
    may be short.
    """
    limit = (1 << num_bits) - 1
    starts = range(0, weight.shape[-1], group_size)
    low = np.stack([weight[..., s : s + group_size].min(axis=-1) for s in starts], axis=-1).clip(max=0)
    high = np.stack([weight[..., s : s + group_size].max(axis=-1) for s in starts], axis=-1).clip(min=0)
    if symmetric:
        high = np.maximum(high, -low)
        low = -high
    scales = np.maximum((high - low) / limit, MIN_SCALE).astype(scale_dtype)
    wide = scales.astype(np.float32)
    zeros = np.full_like(wide, (limit + 1) // 2) if symmetric else np.clip(np.round(-low / wide), 0, limit)
    index = group_of(weight.shape[-1], group_size)
    codes = np.clip(np.round(weight / wide[..., index]) + zeros[..., index], 0, limit)
    return codes.astype(np.uint8), scales, zeros.astype(np.int32)


def dequantize(codes: Array, scales: Array, zeros: Array | None, group_index: Array) -> Array:
    """[out, in] float32 from the parts in logical orientation.

    Raises ValueError for parts that do not fit each other, and for a group that has no scale.
    """
    zeros_fit = zeros is None or zeros.shape == scales.shape
    if not zeros_fit or codes.shape[:-1] != scales.shape[:-1] or codes.shape[-1:] != group_index.shape:
        shapes = [part.shape for part in (codes, scales, zeros, group_index) if part is not None]
        raise ValueError(f"codes, scales, zero points and group index do not fit each other: {shapes}")
    groups = scales.shape[-1]
    if group_index.size and not 0 <= int(group_index.min()) <= int(group_index.max()) < groups:
        raise ValueError(f"group index {group_index.min()}..{group_index.max()} but scales for {groups} groups")
    shifted = codes.astype(np.int32)
    if zeros is not None:
        shifted = shifted - zeros[..., group_index]
    return np.asarray(shifted.astype(np.float32) * scales.astype(np.float32)[..., group_index])
