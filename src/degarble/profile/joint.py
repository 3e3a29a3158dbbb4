"""Do two modules still speak about the same channels? Statistics of pairs, without a reference.

Row i of up_proj writes the neuron that column i of down_proj reads; training makes the two vectors similar along the
hidden channels they share. For paired rows A_i, B_i in a space of D channels

    T(A, B) = D * mean_i cos²(A_i, B_i)         1 for unrelated vectors, with a deviation of sqrt(2 / n)

is about 60 in trained models (up with down, v with o), and falls to a few when the channels of one side are permuted
inside words of eight, as a wrong packing order does. Trying the orders on the stored values shows which one restores T.
Every matrix is first divided by its rms in each channel: T is then blind to what AWQ and SmoothQuant fold into norms,
which without that step looks like a fault. Measured on two trained models and 13 real INT4 files; an untrained model
has T = 1 and nothing can be told.

An order works on blocks, so all orders of a block follow from one small product of blocks:
sum over blocks of A[i, block, a] * B[i, block, b].
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from degarble.checkpoint.tensor_data import Array

AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Column of each nibble of an AWQ word; see formats/awq.py."""

ORDERS: Mapping[str, tuple[int, ...]] = {
    "awq": AWQ_ORDER,
    "awq-inverse": tuple(AWQ_ORDER.index(column) for column in range(8)),
    "reversed": tuple(reversed(range(8))),
    "pairs-swapped": (1, 0, 3, 2, 5, 4, 7, 6),
}
"""Orders inside eight neighbours. `order[j]`: the stored place of what belongs at j."""

WIDE_ORDERS: Mapping[str, tuple[int, ...]] = {
    "halves-interleaved": tuple(one for low in range(16) for one in (low, low + 16)),
    "halves-deinterleaved": (*range(0, 32, 2), *range(1, 32, 2)),
    "halves-swapped": (*range(16, 32), *range(16)),
}
"""Orders inside blocks of 32, as GGUF nibbles have them."""


LARGEST = 1e15
"""Larger values overflow when squares of them are added."""


def channel_rms(rows: Array) -> Array:
    """[n, D] -> [D], 1 where a channel is all zero."""
    rms = np.sqrt(np.einsum("nd,nd->d", rows, rows) / max(len(rows), 1))
    return np.where(rms == 0, np.float32(1), rms).astype(np.float32)


def unit_rows(rows: Array) -> Array:
    """[n, D] float32 divided by the rms of each channel, then to length 1; rows of zeros stay zero.

    Infinities and NaNs count as zero: other rules report them, and one of them would make every statistic NaN.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rms = channel_rms(rows)
        if not np.isfinite(rms).all():
            rows = np.where(np.isfinite(rows) & (np.abs(rows) < LARGEST), rows, np.float32(0))
            rms = channel_rms(rows)
    scaled = rows * (1 / rms)
    length = np.sqrt(np.einsum("nd,nd->n", scaled, scaled))
    scaled *= (1 / np.where(length > 0, length, np.float32(1)))[:, None]
    return np.asarray(scaled)


def alignment(left: Array, right: Array) -> float:
    """T of two sets of unit rows."""
    return _alignment(np.einsum("nd,nd->n", left, right), left.shape[1])


def _alignment(cosines: Array, channels: int) -> float:
    wide = cosines.astype(np.float64)
    return float(channels * np.dot(wide, wide) / wide.size)


def channel_orders(left: Array, right: Array, block: int = 8) -> dict[str, float]:
    """T for every order of the channels of `left` inside blocks; of `right` it is the inverse order."""
    count, channels = left.shape[0], left.shape[1] // block * block
    if not channels:
        return {}
    one = left[:, :channels].reshape(count, -1, block).transpose(0, 2, 1)
    two = right[:, :channels].reshape(count, -1, block)
    cross = np.matmul(one, two)  # [n, place in the block of left, of right]
    return _alignments(_in_orders(cross, block).sum(axis=2, keepdims=True), left.shape[1], block)


def neuron_orders(left: Array, right: Array, block: int = 8) -> dict[str, float]:
    """T for every order of the rows of `left` inside blocks; the rows must be whole blocks."""
    count = len(left) // block * block
    if not count:
        return {}
    channels = left.shape[1]
    one, two = left[:count].reshape(-1, block, channels), right[:count].reshape(-1, block, channels)
    cross = np.matmul(one, two.transpose(0, 2, 1))  # [blocks, place in the block of left, of right]
    return _alignments(_in_orders(cross, block), channels, block)


def _in_orders(cross: Array, block: int) -> Array:
    """[n, place of left, of right] -> [n, orders, place of right]: what meets at each place in each order."""
    return np.asarray(cross[:, np.array(list(orders_of(block).values())), np.arange(block)])


def _alignments(cosines: Array, channels: int, block: int) -> dict[str, float]:
    """[n, orders, cosines]"""
    scores = channels * np.square(cosines, dtype=np.float64).mean(axis=(0, 2))
    return dict(zip(orders_of(block), scores.tolist(), strict=True))


@lru_cache(maxsize=4)
def orders_of(block: int) -> dict[str, tuple[int, ...]]:
    """Orders of 8, repeated, and those of 32 where blocks are that wide."""
    repeated = {
        name: tuple(base + one for base in range(0, block, 8) for one in order) for name, order in ORDERS.items()
    }
    return repeated | (dict(WIDE_ORDERS) if block == 32 else {})


def deviations(candidate: float, stored: float, count: int) -> float:
    """How far a candidate's T is above the stored one's, in standard deviations of unrelated rows."""
    return (candidate - stored) / float(np.sqrt(2 / max(count, 1)))


def exchange_of_key_value(query_key: float, value_output: float, query_value: float, key_output: float) -> float:
    """log[T(q,k) T(v,o) / (T(q,v) T(k,o))]: above 2 in trained models, its negative if k and v were exchanged."""
    floor = 1e-6
    products = (max(query_key * value_output, floor), max(query_value * key_output, floor))
    return float(np.log(products[0] / products[1]))


def exchange_of_gate_up(up: Array, gate: Array, down: Array) -> float:
    """|z mean cos(up, down)| - |z mean cos(gate, down)|; negative if gate and up were exchanged.

    Turning the signs of up_i and down_i together changes no output, turning those of gate_i and down_i does; so only
    up can have a mean cosine with down, in every SwiGLU model.
    """
    weight = float(np.sqrt(down.size))
    one = np.einsum("nd,nd->n", up, down).mean(dtype=np.float64)
    two = np.einsum("nd,nd->n", gate, down).mean(dtype=np.float64)
    return float(abs(one) - abs(two)) * weight


def rotary_order(query: Array, key: Array, head_dim: int) -> float:
    """log[X(half) / X(interleaved)] / sqrt(4 / n): positive where rotary pairs are (i, i + head_dim / 2).

    X: mean cos² of the cross members of a pair, query i with the key's other half. Rows are whole heads, in pairs.
    """
    heads = len(query) // head_dim
    if not heads or head_dim % 2:
        return 0.0
    count, dims = heads * head_dim, np.arange(head_dim)
    half = _cross(query[:count], key[:count], (dims + head_dim // 2) % head_dim)
    interleaved = _cross(query[:count], key[:count], dims ^ 1)
    return float(np.log(half / interleaved) / np.sqrt(4 / count)) if min(half, interleaved) > 0 else 0.0


def _cross(query: Array, key: Array, partner: Array) -> float:
    """Mean cos² of each query row with the key row of its partner in the head."""
    other = key.reshape(-1, len(partner), key.shape[1])[:, partner].reshape(key.shape)
    return float(np.square(np.einsum("nd,nd->n", query, other), dtype=np.float64).mean())
