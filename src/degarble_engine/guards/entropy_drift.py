"""A distribution over tokens that no longer says anything, or only one thing."""

from __future__ import annotations

import math
from itertools import islice

from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard
from degarble_engine.guards.watched import Watched

EVERY = 8
"""Tokens from one look to the next."""
WINDOW = 32
FLAT_WINDOW = 16
MAX_SHARE = 0.7
"""Of log(vocab): a uniform distribution has 1."""
FLAT_SPREAD = 0.02
FLAT_ENTROPY = 1.5
"""The same entropy at every token, to FLAT_SPREAD nats, and more than that: the input no longer matters."""
LEAST_ENTROPY = 1e-6
"""Mean over the window. fp32 gives exactly 0 where logits are blown up; certain healthy steps still have some 1e-4."""
MAX_TEMPERATURE = 1.2
"""Hotter requests write noise because they were asked to."""


class EntropyDrift(Guard):
    """The entropy of the model's own distribution over 32 tokens explodes, freezes or vanishes.

    Exploded: above 0.7 of log(vocabulary), where the model knows nothing (a uniform distribution has 1). Frozen: equal to
    0.02 nats over 16 tokens and above 1.5, so that the input no longer matters (a zero point off by one in one layer gives
    4.83 for every prompt). Vanished: below 1e-6 nats, as when logits are blown up. Temperature does not count: entropies
    are of the model, not of the sampler; but text drawn at a temperature above 1.2 is noise on purpose, and not judged.
    """

    name = "entropy-drift"
    default = Action.STOP
    bound = f"{WINDOW} tokens, {FLAT_WINDOW} where it is frozen, and {EVERY - 1} further ones"

    def see_token(self, watched: Watched, token_id: int) -> Trip | None:
        """See Guard."""
        known = watched.entropies
        if watched.num_outputs % EVERY or len(known) < FLAT_WINDOW:
            return None
        if watched.request.params.temperature > MAX_TEMPERATURE:
            return None
        newest = list(islice(reversed(known), WINDOW))
        flat = newest[:FLAT_WINDOW]
        spread = max(flat) - min(flat)
        if spread < FLAT_SPREAD and min(flat) > FLAT_ENTROPY:
            return self._trip(watched, "is the same at every token", spread, FLAT_SPREAD)
        if len(newest) < WINDOW:
            return None
        mean = sum(newest) / WINDOW
        most = MAX_SHARE * math.log(self.surroundings.vocab_size)
        if mean > most:
            return self._trip(watched, f"is {mean:.2f} nats over {WINDOW} tokens", mean, most)
        if mean < LEAST_ENTROPY:
            return self._trip(watched, f"is {mean:.1e} nats over {WINDOW} tokens", mean, LEAST_ENTROPY)
        return None

    def _trip(self, watched: Watched, what: str, measured: float, bound: float) -> Trip | None:
        return watched.trip(self.name, TripKind.DAMAGE, f"the entropy {what}", entropy=(measured, bound))
