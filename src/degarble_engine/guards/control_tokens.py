"""Control tokens inside an answer."""

from __future__ import annotations

from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard
from degarble_engine.guards.watched import Watched

MAX_DAMAGE = 4
WINDOW = 32


class ControlTokens(Guard):
    """A special token that ends nothing comes up in an answer: a begin of text, a turn marker, a padding token.

    One is a suspicion: a wrong template, an id that means something else in this vocabulary. Four within 32 tokens are
    damage. What comes after an end that the request asked to ignore is not judged: there the model begins a new turn.
    """

    name = "control-tokens"
    default = Action.ANNOTATE
    bound = "1 token; 4 for damage"

    @property
    def silence(self) -> str | None:
        """See Guard."""
        return None if self.surroundings.special_ids else "the tokenizer has no special tokens"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        around = self.surroundings
        is_end = token_id in watched.request.end_ids or token_id in around.end_ids
        if token_id not in around.special_ids or is_end or watched.is_ended_by_model:
            return None
        places = watched.state.setdefault(self.name, [])
        assert isinstance(places, list)
        places.append(watched.num_outputs)
        recent = [place for place in places[-MAX_DAMAGE:] if place > watched.num_outputs - WINDOW]
        kind = TripKind.DAMAGE if len(recent) >= MAX_DAMAGE else TripKind.SUSPECT
        message = f"control token {token_id} as token {watched.num_outputs} of the answer"
        return watched.trip(self.name, kind, message, tokens=(len(recent), MAX_DAMAGE))
