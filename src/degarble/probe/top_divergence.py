"""Kullback-Leibler divergence of two endpoints from the few best log probabilities that they tell.

The tokens that both sides name stand for themselves and all others are one lump. Merging outcomes never makes a divergence larger
(data-processing inequality), so that the sum is a lower bound of the true one, in nats. Positions are comparable as long as
both answers are the same up to there; at the first token that differs the distributions still have the same context.
"""

from __future__ import annotations

import math

import msgspec

from degarble.probe.exchange import Answer, Score

FLOOR = 1e-6
"""Of the lump, where rounding makes the named tokens add up to one or more."""


class Divergence(msgspec.Struct, frozen=True, kw_only=True):
    """Over the positions that can be compared."""

    mean: float
    positions: int
    agreeing: int
    """Positions where both chose the same token."""


def top_divergence(reference: Answer, candidate: Answer) -> Divergence | None:
    """From the reference to the candidate; None where either tells no alternatives."""
    values: list[float] = []
    agreeing = 0
    for theirs, mine in zip(reference.scores, candidate.scores, strict=False):
        value = _at(theirs, mine)
        if value is None:
            break
        values.append(value)
        agreeing += theirs.token == mine.token
        if theirs.token != mine.token:
            break
    return Divergence(mean=sum(values) / len(values), positions=len(values), agreeing=agreeing) if values else None


def _at(reference: Score, candidate: Score) -> float | None:
    theirs, mine = _chances(reference), _chances(candidate)
    if len(theirs) < 2 or len(mine) < 2:
        return None
    shared = theirs.keys() & mine.keys()
    pairs = [(theirs[token], mine[token]) for token in shared]
    rest = tuple(max(FLOOR, 1.0 - sum(pair[side] for pair in pairs)) for side in (0, 1))
    return max(0.0, sum(p * math.log(p / q) for p, q in [*pairs, (rest[0], rest[1])]))


def _chances(score: Score) -> dict[str, float]:
    return {token: math.exp(number) for token, number in score.top if number is not None and -100 < number <= 0.01}
