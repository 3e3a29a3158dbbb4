"""What a decoder does to each row between two products: norm, rotation, gate. One pass each, in float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from degarble_engine.compiled.numbers import exponential, jit, lane, put

BLOCK = 4096
"""Numbers that are summed in float32, before float64 takes the sum."""


@jit(parallel=True)
def norm(rows: Any, gain: Any, eps: Any, found: Any) -> None:
    """gain · x / sqrt(mean(x²) + eps) of rows [..., width], contiguous."""
    width = rows.shape[-1]
    count = rows.size // width
    flat, target = rows.reshape(-1), found.reshape(-1)
    for row in prange(count):
        total, begin = np.float32(0), row * width
        for i in range(width):
            total += lane(flat, begin + i) * lane(flat, begin + i)
        factor = np.float32(1) / np.sqrt(total / np.float32(width) + eps)
        for i in range(width):
            put(target, begin + i, lane(gain, i) * (lane(flat, begin + i) * factor))


@jit(parallel=True)
def turn(heads: Any, num_turned: Any, cos: Any, sin: Any, found: Any) -> None:
    """Lane i with lane i + d / 2 of the first heads of [n, all heads, d]; cos and sin [n, d / 2], found [n, turned, d]."""
    count, all_heads, lanes = heads.shape
    half = lanes // 2
    flat, target, cosine, sine = heads.reshape(-1), found.reshape(-1), cos.reshape(-1), sin.reshape(-1)
    for row in prange(count):
        for head in range(num_turned):
            source, to, angle = (row * all_heads + head) * lanes, (row * num_turned + head) * lanes, row * half
            for i in range(half):
                low, high = lane(flat, source + i), lane(flat, source + half + i)
                c, s = lane(cosine, angle + i), lane(sine, angle + i)
                put(target, to + i, low * c - high * s)
                put(target, to + half + i, high * c + low * s)


@jit(parallel=True)
def gated(gate_up: Any, found: Any) -> None:
    """g / (1 + e^-g) · u of [n, gate then up]."""
    count, both = gate_up.shape
    width = both // 2
    flat, target = gate_up.reshape(-1), found.reshape(-1)
    for row in prange(count):
        for i in range(width):
            gate = lane(flat, row * both + i)
            up = lane(flat, row * both + width + i)
            put(target, row * width + i, gate / (np.float32(1) + exponential(-gate)) * up)


@jit(parallel=True)
def entropy(logits: Any, found: Any) -> None:
    """Nats of softmax of [n, vocab], in found [n]; not finite where one of the logits is not."""
    count, vocab = logits.shape
    flat = logits.reshape(-1)
    for row in prange(count):
        begin = row * vocab
        most = lane(flat, begin)
        for i in range(vocab):
            value = lane(flat, begin + i)
            most = value if value > most else most
        total, product = np.float64(0), np.float64(0)
        for start in range(0, vocab, BLOCK):
            part, part_product = np.float32(0), np.float32(0)
            for i in range(start, min(vocab, start + BLOCK)):
                shifted = lane(flat, begin + i) - most
                weight = exponential(shifted)
                part += weight
                part_product += weight * shifted
            total += np.float64(part)
            product += np.float64(part_product)
        found[row] = np.log(total) - product / total
