"""A multiple-choice knapsack, solved exactly: one option a unit, least total cost within a budget of bits.

Sizes are whole numbers of bits with a large common divisor (they are multiples of matrix sizes), by which everything is
divided; then dynamic programming over what is spent beyond the smallest options. Where that is still too many states, the
sizes are rounded up to a coarser unit, and how far the result can be from the best one is told: the bound is the linear
relaxation's (Lagrange).
Book: Kellerer, Pferschy, Pisinger, *Knapsack Problems* (2004), chapter 11.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array

MAX_STATES = 200_000


class Option(msgspec.Struct, frozen=True):
    """One way of keeping a unit."""

    size: int
    cost: float


class Allocation(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen."""

    chosen: tuple[int, ...]
    """Option of each unit."""
    size: int
    cost: float
    lower_bound: float
    """No choice within the budget costs less."""


def allocate(units: Sequence[Sequence[Option]], budget: int) -> Allocation:
    """Raises ValueError where even the smallest options do not fit."""
    least = [min(option.size for option in options) for options in units]
    room = budget - sum(least)
    if room < 0:
        raise ValueError(f"the smallest options take {sum(least)}, more than {budget}")
    extra = [[option.size - small for option in options] for options, small in zip(units, least, strict=True)]
    step = reduce(math.gcd, (one for sizes in extra for one in sizes if one), 0) or 1
    is_exact = room // step <= MAX_STATES
    step = step if is_exact else step * -(-(room // step) // MAX_STATES)
    steps = [[-(-one // step) for one in sizes] for sizes in extra]
    chosen = _solved(steps, [[option.cost for option in options] for options in units], room // step)
    picked = [options[at] for options, at in zip(units, chosen, strict=True)]
    cost = sum(one.cost for one in picked)
    bound = cost if is_exact else min(cost, _relaxed(units, budget))
    return Allocation(chosen=tuple(chosen), size=sum(one.size for one in picked), cost=cost, lower_bound=bound)


def _solved(steps: Sequence[Sequence[int]], costs: Sequence[Sequence[float]], room: int) -> list[int]:
    """The option of each unit; least[s] is the least cost of the units so far with at most s steps spent."""
    least: Array = np.zeros(room + 1)
    taken: list[Array] = []
    for sizes, own in zip(steps, costs, strict=True):
        found = np.full(room + 1, np.inf)
        choice = np.zeros(room + 1, np.int16)
        for at, (size, cost) in enumerate(zip(sizes, own, strict=True)):
            if size > room:
                continue
            offered = least[: room + 1 - size] + cost
            better = offered < found[size:]
            found[size:][better] = offered[better]
            choice[size:][better] = at
        least = found
        taken.append(choice)
    chosen, left = [], room
    for sizes, choice in zip(reversed(steps), reversed(taken), strict=True):
        chosen.append(int(choice[left]))
        left -= sizes[chosen[-1]]
    return chosen[::-1]


def _relaxed(units: Sequence[Sequence[Option]], budget: int) -> float:
    """max over prices of sum min (cost + price size) - price budget: bisection, as it is concave."""
    low, high = 0.0, 1e30
    best = 0.0
    for _ in range(300):
        price = math.sqrt(low * high) if low > 0 else high * 1e-6
        picked = [min(options, key=lambda one: (one.cost + price * one.size, one.size)) for options in units]
        size = sum(one.size for one in picked)
        best = max(best, sum(one.cost for one in picked) + price * (size - budget))
        low, high = (price, high) if size > budget else (low, price)
    return best
