"""Two greedy answers to one prompt: the same computation, rounding, or something else?

Kernels round differently with the shape of a batch, so that log probabilities drift by some hundredths and a near tie falls
the other way: both answers are right then. A token that was far behind does not win by rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from degarble.probe.exchange import Answer, Score

BOUND_NATS = 0.25
"""Rounding in bf16 moves log probabilities by less than 0.05 (research: symptoms, row 12); five times that."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """Where two answers part."""

    position: int
    """Of the first differing token, or the first whose log probability jumps; of the character without tokens."""
    nats: float | None
    """How far the other answer's token was behind, or the jump. None where the endpoint tells no log probabilities."""
    one: str
    other: str

    def is_beyond(self, bound: float = BOUND_NATS) -> bool:
        """Whether rounding does not explain it. Nothing is said without log probabilities."""
        return self.nats is not None and self.nats > bound


def greedy_difference(one: Answer, other: Answer) -> Difference | None:
    """None where both are equal, the log probabilities up to rounding."""
    if not one.scores or not other.scores:
        return _of_texts(one.text, other.text)
    for at, (mine, theirs) in enumerate(zip(one.scores, other.scores, strict=False)):
        if mine.token != theirs.token:
            return Difference(position=at, nats=_behind(mine, theirs), one=mine.token, other=theirs.token)
        if mine.logprob is not None and theirs.logprob is not None and abs(mine.logprob - theirs.logprob) > BOUND_NATS:
            jump = abs(mine.logprob - theirs.logprob)
            return Difference(position=at, nats=jump, one=mine.token, other=theirs.token)
    shorter = min(len(one.scores), len(other.scores))
    if len(one.scores) == len(other.scores):
        return None
    ends = [_token_at(scores, shorter) for scores in (one.scores, other.scores)]
    return Difference(position=shorter, nats=None, one=ends[0], other=ends[1])


def _token_at(scores: Sequence[Score], at: int) -> str:
    return scores[at].token if at < len(scores) else "the end"


def _behind(mine: Score, theirs: Score) -> float | None:
    """How much less likely the other's token was where mine was chosen; at least, where it is not among the alternatives."""
    if mine.logprob is None:
        return None
    known = dict(mine.top)
    number = known.get(theirs.token)
    if number is not None:
        return abs(mine.logprob - number)
    lowest = min((value for value in known.values() if value is not None), default=None)
    return None if lowest is None else abs(mine.logprob - lowest)


def _of_texts(one: str, other: str) -> Difference | None:
    if one == other:
        return None
    at = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    return Difference(position=at, nats=None, one=one[at : at + 20], other=other[at : at + 20])
