"""Pairs of modules: every statistic on a small model whose truth is known, and slow twins of the block products."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble.profile import joint

NEURONS, CHANNELS = 256, 320


def pair(strength: float, seed: int = 0, mean: float = 0.0) -> tuple[Array, Array]:
    """Two sets of rows whose cosines scatter around `mean` with a deviation near `strength`."""
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(NEURONS, CHANNELS))
    factor = strength * rng.choice([-1, 1], (NEURONS, 1)) + mean
    right = factor * left + rng.normal(size=(NEURONS, CHANNELS))
    folds = np.exp(rng.normal(size=CHANNELS))  # what AWQ moves into a norm
    return (left * folds).astype(np.float32), right.astype(np.float32)


def units(strength: float, **more: float) -> tuple[Array, Array]:
    left, right = pair(strength, **more)  # type: ignore[arg-type]
    return joint.unit_rows(left), joint.unit_rows(right)


def test_unrelated_rows_have_one_and_related_ones_more() -> None:
    assert joint.alignment(*units(0.0)) == pytest.approx(1, abs=4 * (2 / NEURONS) ** 0.5)
    assert joint.alignment(*units(0.4)) > 20


def test_orders_of_channels_equal_gathering_them() -> None:
    left, right = units(0.4)
    for block in (8, 32):
        fast = joint.channel_orders(left, right, block)
        for name, order in joint.orders_of(block).items():
            index = (np.arange(0, CHANNELS, block)[:, None] + np.array(order)).reshape(-1)
            assert fast[name] == pytest.approx(joint.alignment(left[:, index], right), rel=1e-4), name


@pytest.mark.parametrize("name", sorted({**joint.ORDERS, **joint.WIDE_ORDERS}))
def test_the_undoing_order_wins(name: str) -> None:
    left, right = units(0.4)
    order = joint.orders_of(32)[name]
    stored = np.empty_like(left)
    index = (np.arange(0, CHANNELS, 32)[:, None] + np.array(order)).reshape(-1)
    stored[:, index] = left  # what belongs at j is stored at order[j]
    scores = joint.channel_orders(stored, right, 32)
    now = joint.alignment(stored, right)
    assert max(scores, key=lambda one: scores[one]) == name
    assert joint.deviations(scores[name], now, NEURONS) > 8 and scores[name] / now > 1.25
    rows = np.empty_like(left)
    rows[(np.arange(0, NEURONS, 32)[:, None] + np.array(order)).reshape(-1)] = left
    neurons = joint.neuron_orders(rows, right, 32)
    assert max(neurons, key=lambda one: neurons[one]) == name


def test_healthy_and_random_rows_prefer_no_order() -> None:
    for strength in (0.0, 0.1, 0.4):
        for seed in range(6):
            left, right = units(strength, seed=seed)
            now = joint.alignment(left, right)
            for scores in (joint.channel_orders(left, right, 32), joint.neuron_orders(left, right, 32)):
                assert all(joint.deviations(value, now, NEURONS) < 8 for value in scores.values())


def test_exchanged_gate_and_up() -> None:
    up, down = units(0.1, mean=0.15)
    gate = joint.unit_rows(np.random.default_rng(9).normal(size=up.shape).astype(np.float32))
    assert joint.exchange_of_gate_up(up, gate, down) > 6
    assert joint.exchange_of_gate_up(gate, up, down) < -6


def test_exchanged_key_and_value() -> None:
    assert joint.exchange_of_key_value(16, 60, 1, 1) > 2
    assert joint.exchange_of_key_value(1, 1, 16, 60) < -2
    assert np.isfinite(joint.exchange_of_key_value(0, 0, 0, 0))


def test_rotary_order_of_pairs() -> None:
    rng, dim = np.random.default_rng(0), 64
    query = rng.normal(size=(NEURONS, CHANNELS))
    key = np.zeros_like(query)
    for head in range(0, NEURONS, dim):
        for place in range(dim // 2):
            a, b = head + place, head + place + dim // 2
            key[a], key[b] = query[a] + 0.6 * query[b], query[b] - 0.6 * query[a]
    key += rng.normal(size=key.shape)
    half = joint.unit_rows(query.astype(np.float32)), joint.unit_rows(key.astype(np.float32))
    swap = np.concatenate([head + np.arange(dim).reshape(2, -1).T.reshape(-1) for head in range(0, NEURONS, dim)])
    assert joint.rotary_order(*half, dim) > 4
    assert joint.rotary_order(half[0][swap], half[1][swap], dim) < -4
    assert joint.rotary_order(half[0][:8], half[1][:8], dim) == 0.0


def test_rows_of_zeros_are_harmless() -> None:
    left, right = pair(0.4)
    left[:5], right[:, 3] = 0, 0
    assert np.isfinite(joint.alignment(joint.unit_rows(left), joint.unit_rows(right)))


@pytest.mark.parametrize("value", [np.nan, np.inf, 3e38])
def test_damaged_values_do_not_spread(value: float) -> None:
    left, right = pair(0.4)
    healthy = joint.alignment(joint.unit_rows(left), joint.unit_rows(right))
    left[7, 9] = value
    assert joint.alignment(joint.unit_rows(left), joint.unit_rows(right)) == pytest.approx(healthy, rel=0.05)
