"""The knapsack against trying everything."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble_engine.sensitivity import allocation
from degarble_engine.sensitivity.allocation import Option, allocate

OPTION = st.builds(Option, st.integers(1, 12).map(lambda size: size * 64), st.floats(0, 10))
UNITS = st.lists(st.lists(OPTION, min_size=1, max_size=4), min_size=1, max_size=5)


def best(units: list[list[Option]], budget: int) -> float:
    choices = [pick for pick in product(*units) if sum(one.size for one in pick) <= budget]
    return min(sum(one.cost for one in pick) for pick in choices)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(UNITS, st.integers(0, 40))
def test_the_best_of_all_choices(units: list[list[Option]], more: int) -> None:
    budget = sum(min(one.size for one in options) for options in units) + 64 * more
    found = allocate(units, budget)
    assert found.size <= budget and found.cost == pytest.approx(best(units, budget))
    assert found.lower_bound == found.cost
    assert found.cost == pytest.approx(sum(one[at].cost for one, at in zip(units, found.chosen, strict=True)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(UNITS, st.integers(0, 40))
def test_coarser_steps_tell_how_far_they_may_be(units: list[list[Option]], more: int) -> None:
    budget = sum(min(one.size for one in options) for options in units) + 64 * more
    old = allocation.MAX_STATES
    allocation.MAX_STATES = 3
    try:
        found = allocate(units, budget)
    finally:
        allocation.MAX_STATES = old
    assert found.size <= budget
    assert found.lower_bound <= best(units, budget) + 1e-6 <= found.cost + 2e-6


def test_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="128, more than 100"):
        allocate([[Option(128, 0.0)]], 100)
