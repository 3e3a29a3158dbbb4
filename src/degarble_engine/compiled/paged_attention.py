"""Attention of tokens over rows that lie in pages: read where they are, nothing gathered, key heads not repeated.

A task is one query head of one token. It takes its rows in runs that begin at multiples of RUN in the sequence, and keeps
a running softmax (Milakov and Gimelshein, 2018):

    run:      x_j = scale · q·k_j      top' = max(top, max x_j)      e_j = exp(x_j - top')
    so far:   total = total · exp(top - top') + Σ e_j                mixed = mixed · exp(top - top') + Σ e_j v_j

What is computed for a token depends on its own rows and place alone, so prefill, chunks and batches give the same bits.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numba import prange

from degarble_engine.compiled.numbers import exponential, jit, lane, put

RUN = 64


USUAL_LANES = frozenset({64, 128})
"""Head sizes with loops of their own: a loop of a length that is known costs half."""


def attend(
    query: Any, found: Any, key: Any, value: Any, bases: Any, head_steps: Any, rows: Any, places: Any, scale: Any
) -> None:
    """query [tokens, heads, lanes] and found [tokens, heads, value lanes] in float32; key and value flat.

    rows: where each row of each request begins, in elements behind `bases`; places [3, tokens]: where a token's
    request begins in `rows`, the first row that it sees, and the one behind the last. `head_steps`: elements from key
    head to key head, for K and V, and query heads that share one.
    """
    lanes = query.shape[2]
    is_usual = lanes in USUAL_LANES and found.shape[2] == lanes
    _attend_of(lanes if is_usual else 0)(query, found, key, value, bases, head_steps, rows, places, scale)


@lru_cache(maxsize=len(USUAL_LANES) + 1)
def _attend_of(known: int) -> Any:
    """The loops for heads of `known` lanes; 0: of any."""

    @jit(parallel=True)
    def loops(
        query: Any, found: Any, key: Any, value: Any, bases: Any, head_steps: Any, rows: Any, places: Any, scale: Any
    ) -> None:
        heads, lanes, value_lanes = query.shape[1], known or query.shape[2], known or found.shape[2]
        flat_query, flat_found = query.reshape(-1), found.reshape(-1)
        for task in prange(query.shape[0] * heads):
            token, kv_head = task // heads, task % heads // head_steps[2]
            begin, at, end = places[0, token], places[1, token], places[2, token]
            key_base, value_base = bases[0] + kv_head * head_steps[0], bases[1] + kv_head * head_steps[1]
            weights, mixed = np.empty(RUN, np.float32), np.zeros(value_lanes, np.float32)
            top, total = np.float32(-np.inf), np.float32(0)
            while at < end:
                count = min(end, (at // RUN + 1) * RUN) - at
                highest = top
                for j in range(count):
                    row, product = key_base + rows[begin + at + j], np.float32(0)
                    for i in range(lanes):
                        product += lane(flat_query, task * lanes + i) * lane(key, row + i)
                    product *= scale
                    weights[j] = product
                    highest = highest if product <= highest else product
                before = exponential(top - highest) if at > places[1, token] else np.float32(0)
                top, total = highest, total * before
                for j in range(count):
                    weights[j] = exponential(weights[j] - top)
                for j in range(count):
                    total += weights[j]
                for i in range(value_lanes):
                    mixed[i] *= before
                for j in range(count):
                    row, weight = value_base + rows[begin + at + j], weights[j]
                    for i in range(value_lanes):
                        mixed[i] += weight * lane(value, row + i)
                at += count
            for i in range(value_lanes):
                put(flat_found, task * value_lanes + i, mixed[i] / total)

    return loops


@jit
def store(rows: Any, cache: Any, base: Any, head_step: Any, slots: Any) -> None:
    """rows [tokens, heads, lanes] into the cache; slots: where each token's row begins behind `base`."""
    heads, lanes = rows.shape[1], rows.shape[2]
    flat = rows.reshape(-1)
    for token in range(slots.shape[0]):
        for head in range(heads):
            target = base + slots[token] + head * head_step
            for i in range(lanes):
                put(cache, target + i, lane(flat, (token * heads + head) * lanes + i))
