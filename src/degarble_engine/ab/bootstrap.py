"""Paired bootstrap over prompts: how far a difference of two sides could come from the choice of prompts alone.

Both sides answer the same prompts, so whole prompts are drawn again, and both sides with them. Every statistic here is a
function of sums over prompts (a mean, a perplexity, a corpus BLEU), so a draw is a row of counts and all draws are one
product of matrices.

The interval is the percentile one, widened for small samples as Hesterberg (2015, arXiv:1411.5279, section 4) does it:
quantiles at Phi(-t sqrt(n / (n - 1))) instead of alpha / 2, t being Student's quantile with n - 1 degrees.

Paper of the paired test for BLEU: Koehn 2004.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array

LEVEL = 0.95
POWER = 0.8
LEAST_PROMPTS = 5
"""Fewer say nothing of their spread."""
AT_ONCE = 1 << 24
"""Counts held together."""

Statistic = Callable[[Array], Array]
"""Sums [draws, columns] -> one value a draw."""


class Interval(msgspec.Struct, frozen=True, kw_only=True):
    """Side B less side A."""

    difference: float
    low: float
    high: float
    num_prompts: int
    prompts_that_would_tell: int | None
    """At 80 % power and this difference; None where there is none to be seen, or no spread to reckon with."""

    @property
    def is_told(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low > 0 or self.high < 0


def paired(sums_a: Array, sums_b: Array, statistic: Statistic, *, draws: int, seed: int) -> Interval:
    """Sums of every prompt, [prompts, columns] for each side."""
    count = len(sums_a)
    whole = float(statistic(sums_b.sum(0)[None])[0] - statistic(sums_a.sum(0)[None])[0])
    if count < LEAST_PROMPTS:
        return Interval(difference=whole, low=-math.inf, high=math.inf, num_prompts=count, prompts_that_would_tell=None)
    drawn = np.concatenate(
        [statistic(counts @ sums_b) - statistic(counts @ sums_a) for counts in _counts(count, draws, seed)]
    )
    tail = NormalDist().cdf(-student(1 - (1 - LEVEL) / 2, count - 1) * math.sqrt(count / (count - 1)))
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return Interval(
        difference=whole,
        low=float(low),
        high=float(high),
        num_prompts=count,
        prompts_that_would_tell=_enough(whole, float(drawn.std()), count),
    )


def _counts(count: int, draws: int, seed: int) -> list[Array]:
    """How often each prompt is in each draw."""
    rng = np.random.default_rng(seed)
    share = max(1, AT_ONCE // count)
    sizes = [min(share, draws - start) for start in range(0, draws, share)]
    return [rng.multinomial(count, np.full(count, 1 / count), size).astype(np.float64) for size in sizes]


def _enough(difference: float, spread: float, count: int) -> int | None:
    """n (z_0.975 + z_0.8)^2 (standard error / difference)^2, the usual size of a paired sample."""
    if difference == 0 or not spread > 0 or not math.isfinite(spread):
        return None
    normal = NormalDist()
    needed = normal.inv_cdf(1 - (1 - LEVEL) / 2) + normal.inv_cdf(POWER)
    return max(LEAST_PROMPTS, math.ceil(count * (needed * spread / difference) ** 2))


def student(share: float, degrees: int) -> float:
    """Quantile of Student's t: bisection of its distribution, which has a closed form for whole degrees.

    Abramowitz and Stegun 26.7.3 and 26.7.4, with theta = atan(t / sqrt(degrees)).
    """
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, degrees) < 2 * share - 1 else (low, middle)
    return (low + high) / 2


def _inside(t: float, degrees: int) -> float:
    """P(-t < T < t)."""
    theta = math.atan(t / math.sqrt(degrees))
    square = math.cos(theta) ** 2
    is_odd = degrees % 2 == 1
    term = math.cos(theta) if is_odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 if is_odd else 1, degrees - 2 + is_odd, 2):
        term *= square * k / (k + 1)
        total += term
    total *= math.sin(theta)
    return 2 / math.pi * (theta + total) if is_odd else total
