"""The same few tokens again and again."""

from __future__ import annotations

from collections import deque
from itertools import islice

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.probe.loop import MAX_PERIOD, MIN_COPIES, MIN_COVERED, MIN_LETTERS, TAIL
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard
from degarble_engine.guards.watched import Watched

OWN_ENTROPY = 0.5
DAMAGE_ENTROPY = 1.5
"""Nats. Natural loops of a small model: 0.06 to 0.31; INT3 damage: median 1.76; a zero point off by one: 4.83."""
EVERY = 8
"""Tokens from one look to the next."""

_PERIODS = np.arange(1, MAX_PERIOD + 1)
_WANTED = np.maximum(MIN_COVERED, MIN_COPIES * _PERIODS) - _PERIODS
"""Tokens in a row that must equal the one a period before."""
_REACH = int(_WANTED.max())
_BEFORE = np.arange(_REACH)[None, :] + _PERIODS[:, None]  # [periods, reach] place of the token a period before
REMEMBERED = _REACH + MAX_PERIOD


def period_of(newest: Array) -> int | None:
    """The shortest period that has gone on for long enough; `newest` holds up to REMEMBERED ids, the last one first."""
    padded = np.full(REMEMBERED, -1, np.int64)
    padded[: len(newest)] = newest
    is_equal = (padded[:_REACH][None, :] == padded[_BEFORE]) & (padded[_BEFORE] >= 0)
    length = np.where(is_equal.all(1), _REACH, is_equal.argmin(1))
    is_loop = length >= _WANTED
    return int(_PERIODS[is_loop.argmax()]) if is_loop.any() else None


class RepetitionLoop(Guard):
    """A pattern of at most 64 tokens, four times or more, over 64 tokens or more.

    A loop alone is no fault: one in eight greedy answers of a small healthy model ends in one. The entropy of the last 40
    steps tells them apart. Below 0.5 nats the model is certain, and the loop is its own: counted apart, annotated, never
    stopped. Above 1.5 nats it repeats without being certain, which damaged weights and arithmetic do. Between them the
    trip is a suspicion. Patterns with fewer than two letters or digits count only as damage.
    """

    name = "repetition-loop"
    default = Action.STOP
    bound = f"64 tokens, or four periods where that is more, and {EVERY - 1} further ones"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        ids = watched.state.get(self.name)
        if not isinstance(ids, deque):
            ids = watched.state[self.name] = deque(maxlen=REMEMBERED)
        ids.appendleft(token_id)
        if len(ids) < MIN_COVERED or watched.num_outputs % EVERY:
            return None
        period = period_of(np.fromiter(ids, np.int64, len(ids)))
        if period is None:
            return None
        newest = list(islice(reversed(watched.entropies), TAIL))
        entropy = sum(newest) / max(1, len(newest))
        kind = self._kind(entropy)
        if kind is not TripKind.DAMAGE and not self._has_letters(list(islice(ids, period))):
            return None
        return watched.trip(
            self.name,
            kind,
            f"{period} tokens again and again, entropy {entropy:.2f} nats",
            entropy=(entropy, DAMAGE_ENTROPY),
            period=(period, MAX_PERIOD),
        )

    def _kind(self, entropy: float) -> TripKind:
        if entropy < OWN_ENTROPY:
            return TripKind.OWN
        return TripKind.DAMAGE if entropy > DAMAGE_ENTROPY else TripKind.SUSPECT

    def _has_letters(self, pattern: list[int]) -> bool:
        showing = self.surroundings.showing
        if showing is None:
            return True
        text = showing.table.join(pattern).decode("utf-8", "replace")
        return sum(character.isalnum() for character in text) >= MIN_LETTERS
