"""Quantised matrices in the layouts of the integer formats, as arrays under their stored suffixes."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats import awq, awq_gemv, compressed_pack, gptq
from degarble.formats.affine import quantize
from degarble.formats.packing import pack_words
from degarble.formats.scheme import Scheme


def random_weight(out: int, columns: int, seed: int = 0) -> Array:
    """[out, in] float32 that looks like a linear layer."""
    return np.random.default_rng(seed).normal(scale=0.05, size=(out, columns)).astype(np.float32)


def said(method: str, bits: int = 4, group: int = 32, **more: object) -> Scheme:
    """A declaration; group -1 is one scale a row."""
    size = group if group > 0 else None
    kind = "group" if size else "channel"
    return Scheme(method=method, type="int", num_bits=bits, strategy=kind, group_size=size, **more)  # type: ignore[arg-type]


def size_of(group: int, columns: int) -> int:
    """-1 is the whole row."""
    return group if group > 0 else columns


def gptq_parts(
    out: int, columns: int, bits: int = 4, group: int = 32, *, index: bool = False, v2: bool = False, seed: int = 0
) -> dict[str, Array]:
    """GPTQ, with a g_idx in order if asked."""
    size = size_of(group, columns)
    codes, scales, zeros = quantize(random_weight(out, columns, seed), bits, size, symmetric=False)
    parts = {
        "qweight": gptq.pack(codes, bits),
        "qzeros": gptq.pack_zeros(zeros, bits, v2=v2),
        "scales": np.ascontiguousarray(scales.T),
    }
    return parts | ({"g_idx": (np.arange(columns) // size).astype(np.int32)} if index else {})


def awq_parts(out: int, columns: int, group: int = 32, seed: int = 0) -> dict[str, Array]:
    """AWQ GEMM."""
    codes, scales, zeros = quantize(random_weight(out, columns, seed), 4, size_of(group, columns), symmetric=False)
    return {
        "qweight": awq.pack(codes.T),
        "qzeros": awq.pack(zeros.T),
        "scales": np.ascontiguousarray(scales.T),
    }


def gemv_parts(out: int, columns: int, group: int = 32, seed: int = 0) -> dict[str, Array]:
    """AWQ GEMV, padded as its kernels want."""
    codes, scales, zeros = quantize(random_weight(out, columns, seed), 4, group, symmetric=False)
    width = awq_gemv.padded_width(columns, group)
    return {
        "qweight": awq_gemv.pack(codes),
        "qzeros": awq_gemv.pack(awq_gemv.pad(zeros, width * 8)),
        "scales": awq_gemv.pad(scales, width * 8),
    }


def pack_parts(
    out: int, columns: int, bits: int = 4, group: int = 32, *, symmetric: bool = True, seed: int = 0
) -> dict[str, Array]:
    """compressed-tensors pack-quantized."""
    codes, scales, zeros = quantize(
        random_weight(out, columns, seed), bits, size_of(group, columns), symmetric=symmetric
    )
    parts = {
        "weight_packed": pack_words(codes, bits),
        "weight_scale": scales,
        "weight_shape": np.array([out, columns], np.int64),
    }
    return parts if symmetric else parts | {"weight_zero_point": compressed_pack.pack_zeros(zeros, bits)}
