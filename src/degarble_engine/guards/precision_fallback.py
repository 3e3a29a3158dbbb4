"""A place for tokens that are computed again in a higher precision: nothing is there yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from degarble_engine.engine.trip import Trip
from degarble_engine.guards.interface import Action, Guard, Surroundings
from degarble_engine.guards.watched import Watched


class SensitiveTokens(Protocol):
    """Says which tokens lose by the precision that is served."""

    def is_sensitive(self, token_ids: Sequence[int]) -> Trip | None:
        """Whether the last token should be computed again, as a trip of this guard."""


class PrecisionFallback(Guard):
    """Tokens that are sensitive to the served precision, as something that is registered says.

    Nothing is registered yet: the guard says so, and counts nothing.
    """

    name = "precision-fallback"
    default = Action.OFF
    bound = "not known before something is registered"
    is_in_logits = True

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.judge: SensitiveTokens | None = None

    @property
    def silence(self) -> str | None:
        """See Guard."""
        return None if self.judge is not None else "nothing tells which tokens are sensitive"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        return self.judge.is_sensitive(watched.request.token_ids) if self.judge is not None else None
