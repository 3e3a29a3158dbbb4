"""How well copies of a text come out, length by length, and where they stop coming out.

A list of words without meaning can only be continued by looking back at it: even small models do that nearly without mistakes, as
long as attention reaches the words and the cache holds them. So the share of words that come out right does not ask how
clever a model is, only whether it sees its prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher

import msgspec

GOOD = 0.6
BAD = 0.25
MIN_GOOD_RUNGS = 2


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One length."""

    size: int
    """Words."""
    prompt_tokens: int | None
    quality: float


class Collapse(msgspec.Struct, frozen=True, kw_only=True):
    """The last length that is good, and the first that is not."""

    good: Rung
    bad: Rung
    num_bad: int


def copied_share(expected: str, text: str) -> float:
    """Share of the expected words that the answer has in their order."""
    wanted, found = expected.split(), text.split()[: 2 * len(expected.split())]
    blocks = SequenceMatcher(None, wanted, found, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(1, len(wanted))


def find_collapse(rungs: Sequence[Rung]) -> Collapse | None:
    """A step from good to bad that every longer prompt confirms. None: no step, or too few good ones before it."""
    ordered = sorted(rungs, key=lambda rung: rung.size)
    first_bad = next((n for n, rung in enumerate(ordered) if rung.quality <= BAD), None)
    if first_bad is None or first_bad < MIN_GOOD_RUNGS:
        return None
    below, above = ordered[:first_bad], ordered[first_bad:]
    if any(rung.quality < GOOD for rung in below) or any(rung.quality > BAD for rung in above):
        return None
    return Collapse(good=below[-1], bad=above[0], num_bad=len(above))
