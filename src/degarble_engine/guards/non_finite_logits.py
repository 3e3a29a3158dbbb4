"""Logits that are NaN or infinite."""

from __future__ import annotations

import math
from collections.abc import Sequence

from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.interface import Action, Guard, Row
from degarble_engine.guards.watched import Watched


class NonFiniteLogits(Guard):
    """A row of logits holds NaN or an infinity: there is nothing from which a token could be chosen.

    Samplers turn such a row into a token all the same: id 0 ("!" in many vocabularies), the last id, or noise. The answer
    ends with an error. Its blocks leave the prefix cache, with all that was computed on top of them, and are filled with
    zeros before anybody reads them: a NaN in a masked row still reaches a product with its weight of 0.
    """

    name = "non-finite-logits"
    default = Action.STOP
    bound = "the same step, before a token is chosen"
    ends_with = FinishReason.ERROR
    is_in_logits = True

    def see_logits(self, rows: Sequence[Row]) -> list[tuple[Watched, Trip]]:
        """See Guard."""
        found: list[tuple[Watched, Trip]] = []
        for row in rows:
            if math.isfinite(row.entropy):
                continue
            trip = row.watched.trip(
                self.name, TripKind.DAMAGE, f"logits after token {row.watched.num_outputs} are not finite"
            )
            if trip is not None:
                found.append((row.watched, trip))
        return found
