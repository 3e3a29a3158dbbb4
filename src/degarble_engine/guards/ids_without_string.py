"""Sampled ids that the vocabulary has no string for."""

from __future__ import annotations

from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard
from degarble_engine.guards.watched import Watched


class IdsWithoutString(Guard):
    """A padding row of the embedding, or an id past the vocabulary, is sampled.

    No training text holds such an id, so its logit should never win. It does after NaN (a sampler that falls back to the
    last id), with a head of another model, and with a tokenizer that is shorter than the model's.
    """

    name = "ids-without-string"
    default = Action.STOP
    bound = "1 token"

    @property
    def silence(self) -> str | None:
        """See Guard."""
        return None if self.surroundings.showing is not None else "there is no tokenizer"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        showing = self.surroundings.showing
        if showing is None or showing.table.bytes_of(token_id) is not None:
            return None
        known = len(showing.table.pieces)
        return watched.trip(
            self.name, TripKind.DAMAGE, f"id {token_id} has no string", id=(float(token_id), float(known - 1))
        )
