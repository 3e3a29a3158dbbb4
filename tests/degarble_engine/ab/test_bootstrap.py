"""The interval covers what it says, for means and for ratios, and a sample of the size that it names tells."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.checkpoint.tensor_data import Array
from degarble_engine.ab.bootstrap import paired, student
from degarble_engine.ab.metric import mean_of


def with_ones(values: Array) -> Array:
    return np.stack([values, np.ones_like(values)], 1)


def test_quantiles_of_student() -> None:
    table = {1: 12.7062, 2: 4.30265, 3: 3.18245, 4: 2.77645, 9: 2.26216, 30: 2.04227, 120: 1.97993}
    assert {degrees: student(0.975, degrees) for degrees in table} == pytest.approx(table, abs=5e-5)


@pytest.mark.parametrize("count", [8, 40])
def test_the_interval_covers_the_true_difference(count: int) -> None:
    rng = np.random.default_rng(7)
    inside = 0
    for trial in range(400):
        hardness = rng.normal(size=count)  # what both sides share, and pairing takes out
        a, b = hardness + rng.normal(size=count) * 0.3, hardness + rng.normal(size=count) * 0.3 + 0.2
        found = paired(with_ones(a), with_ones(b), mean_of, draws=600, seed=trial)
        inside += found.low <= 0.2 <= found.high
    assert 0.92 <= inside / 400 <= 0.98


def test_ratios_weigh_prompts_by_their_length() -> None:
    a = np.array([[10.0, 10], [2, 1], [2, 1], [2, 1], [2, 1], [2, 1]])
    b = a + np.array([[10.0, 0], *[[0, 0]] * 5])
    assert paired(a, b, mean_of, draws=200, seed=0).difference == pytest.approx(10 / 15)


def test_the_size_that_would_tell_does() -> None:
    rng = np.random.default_rng(3)
    told = 0
    first = rng.normal(0.1, 1.0, 4000)
    needed = paired(with_ones(np.zeros(4000)), with_ones(first), mean_of, draws=500, seed=0).prompts_that_would_tell
    assert needed is not None
    for trial in range(60):
        again = rng.normal(first.mean(), first.std(), needed)
        found = paired(with_ones(np.zeros(needed)), with_ones(again), mean_of, draws=400, seed=trial)
        told += found.is_told
    assert 0.65 <= told / 60 <= 0.95  # 0.8 is what was asked for


def test_few_prompts_tell_nothing() -> None:
    found = paired(with_ones(np.zeros(4)), with_ones(np.ones(4)), mean_of, draws=100, seed=0)
    assert not found.is_told and found.prompts_that_would_tell is None
