"""The rule of loops against its own words, read literally."""

from __future__ import annotations

import random

import numpy as np
import pytest

from degarble.probe.loop import MAX_PERIOD, MIN_COPIES, MIN_COVERED
from degarble_engine.guards.repetition_loop import REMEMBERED, period_of


def literal(ids: list[int]) -> int | None:
    """A pattern of p tokens that the end of the text repeats four times or more, over 64 tokens or more."""
    for period in range(1, MAX_PERIOD + 1):
        covered = max(MIN_COVERED, MIN_COPIES * period)
        end = ids[-covered:]
        if len(end) == covered and all(end[at] == end[at - period] for at in range(period, covered)):
            return period
    return None


def found(ids: list[int]) -> int | None:
    return period_of(np.array(ids[::-1][:REMEMBERED], np.int64))


@pytest.mark.parametrize("period", [1, 2, 3, 15, 16, 17, 31, 63, 64, 65])
def test_a_loop_is_found_at_the_token_that_completes_it(period: int) -> None:
    rng = random.Random(period)
    pattern = [rng.randrange(1000) * 100 + at for at in range(period)]
    ids = [7, 8, 9] + pattern * 6 + pattern * (MIN_COVERED // period)
    told = [at for at in range(1, len(ids) + 1) if found(ids[:at]) is not None]
    assert told == [at for at in range(1, len(ids) + 1) if literal(ids[:at]) is not None]
    assert bool(told) == (period <= MAX_PERIOD)
    if told:
        assert told[0] == 3 + max(MIN_COVERED, MIN_COPIES * period) and found(ids) == period


def test_random_text_agrees_with_the_rule() -> None:
    rng = random.Random(1)
    for _ in range(60):
        ids = [rng.randrange(2) for _ in range(rng.randrange(1, 60))] * rng.randrange(1, 9)
        assert found(ids) == literal(ids)
