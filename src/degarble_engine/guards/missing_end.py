"""Answers whose end was written, and not obeyed."""

from __future__ import annotations

from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard
from degarble_engine.guards.watched import Watched


class MissingEnd(Guard):
    """The model writes an end that the engine does not know as one, or runs into the end of its context.

    An end that is not obeyed (`<|im_end|>` in a model whose generation_config.json lists `<|endoftext|>` only) is damage: the
    answer goes on with an invented question. An answer that fills the whole context is a suspicion; one that reaches the
    client's own max_tokens is neither.
    """

    name = "missing-end"
    default = Action.ANNOTATE
    bound = "1 token after the end that was written"

    @property
    def silence(self) -> str | None:
        """See Guard."""
        return None if self.surroundings.end_like_ids else "the tokenizer has no token that looks like an end"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        around, request = self.surroundings, watched.request
        is_obeyed = token_id in request.end_ids or token_id in around.end_ids
        if is_obeyed or token_id not in around.end_like_ids or watched.is_ended_by_model:
            return None
        return watched.trip(self.name, TripKind.DAMAGE, f"token {token_id} ends a text, and no end is known by this id")

    def see_end(self, watched: Watched) -> Trip | None:
        """See Guard."""
        request = watched.request
        if request.finish_reason is not FinishReason.LENGTH or request.params.ignore_eos:
            return None
        if len(request.token_ids) < self.surroundings.max_model_len:
            return None
        return watched.trip(self.name, TripKind.SUSPECT, "the answer filled the whole context without an end")
