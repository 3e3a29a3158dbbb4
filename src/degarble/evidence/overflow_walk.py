"""Evidence from running a model in the arithmetic of engines: what the range walk of `degarble overflow` found.

Plain numbers and places; the walk needs torch and lives in `degarble_engine`.
"""

from __future__ import annotations

import msgspec

from degarble.errors import EvidenceMissing
from degarble.evidence.store import provides
from degarble.finding import Location


class RangeLeft(msgspec.Struct, frozen=True, kw_only=True):
    """The first number beyond the range, under one arithmetic or several that agree on the place."""

    location: Location
    place: str
    """residual add | gate x up | input | output | q.k | P.V accumulator | sum of squares | …"""
    kind: str
    """not finite | zeros | clamped"""
    dtype: str
    engines: tuple[str, ...]
    finite_engines: tuple[str, ...]
    """Those whose arithmetic stays finite in the same dtype."""
    value: float
    bound: float
    token: int
    """Position of the first token hit, in its sequence."""
    safe_tokens: int
    """Longest beginning of every sequence that stays whole."""
    lost_share: float
    harmed_share: float


class ClippedInput(msgspec.Struct, frozen=True, kw_only=True):
    """An input against its static scale."""

    location: Location
    largest: float
    reach: float
    share: float


class BlockSum(msgspec.Struct, frozen=True, kw_only=True):
    """32 activations whose sum is stored in fp16."""

    location: Location
    largest: float
    sum: float


class OverflowWalk(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the walk found."""

    left: tuple[RangeLeft, ...] = ()
    clipped: tuple[ClippedInput, ...] = ()
    block_sums: tuple[BlockSum, ...] = ()


@provides("overflow_walk")
def overflow_walk() -> OverflowWalk:
    """Only a command that runs the model has it: `overflow`, and `compare` in half precision."""
    raise EvidenceMissing("needs a forward pass: degarble overflow TARGET, or compare with --dtype float16")
