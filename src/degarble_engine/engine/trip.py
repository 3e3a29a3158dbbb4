"""What a guard saw in a request: a record that the engine keeps with it, and that the answer can carry."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec


class TripKind(StrEnum):
    """How much a trip says."""

    DAMAGE = "damage"
    """No healthy model does this: weights, arithmetic, cache or tables are wrong."""
    SUSPECT = "suspect"
    """Rare in a healthy model, and not unheard of."""
    OWN = "own"
    """What this model does when it is well: a loop of which it is certain. Never counted as damage."""


class Trip(msgspec.Struct, frozen=True, kw_only=True):
    """One guard, one request, one place."""

    guard: str
    kind: TripKind
    num_outputs: int
    """Tokens that the answer had when it was seen; 0: none yet."""
    message: str
    measured: Mapping[str, float] = {}
    bound: Mapping[str, float] = {}

    @property
    def note(self) -> dict[str, object]:
        """As an answer carries it."""
        return {"guard": self.guard, "kind": self.kind.value, "token": self.num_outputs, "message": self.message}
