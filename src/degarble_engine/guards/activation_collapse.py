"""Blocks whose output has lost its size."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.baseline import Baseline
from degarble_engine.guards.block_tap import EVERY
from degarble_engine.guards.interface import Action, Guard, Surroundings
from degarble_engine.guards.watched import Watched

NUM_MEASURES = 4
"""Tokens of one answer that are taken together: a single token may have nothing to add, four of them have."""
LEAST_SHARE = 0.2
"""Of the size at the start, as a geometric mean over those tokens."""


class ActivationCollapse(Guard):
    """The output of an attention or feed-forward block falls below a fifth of what it was at the start.

    The incident's case (NUM306) is a fall to 8 % in the last feed-forward blocks. The sizes of four measured tokens of an
    answer are compared, as a geometric mean, with the median of the same block in a run at the start, so that no reference
    model is needed and one quiet token says nothing.
    """

    name = "activation-collapse"
    default = Action.ANNOTATE
    bound = f"{EVERY * NUM_MEASURES} tokens"

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.baseline: Baseline | None = None
        self._median = torch.zeros(0)

    @property
    def silence(self) -> str | None:
        """See Guard."""
        tap = self.surroundings.tap
        if tap is None or self.baseline is None:
            return (tap.silence if tap is not None else None) or "no baseline could be measured at the start"
        return None

    def learn(self, baseline: Baseline | None) -> None:
        """Sizes of the run at the start."""
        self.baseline = baseline
        if baseline is not None:
            self._median = torch.tensor(baseline.median)[:, None]

    def see_blocks(self, spread: Tensor, rows: Sequence[tuple[Watched, int]]) -> list[tuple[Watched, Trip]]:
        """`spread` [blocks, tokens of the step], and the token that is each answer's last."""
        if self.baseline is None:
            return []
        shares = (spread / self._median).clamp_min(1e-9).log()
        found: list[tuple[Watched, Trip]] = []
        for watched, row in rows:
            known = watched.state.setdefault(self.name, deque(maxlen=NUM_MEASURES))
            assert isinstance(known, deque)
            known.append(shares[:, row])
            if len(known) < NUM_MEASURES:
                continue
            mean = torch.stack(list(known)).mean(0)
            small = (mean < math.log(LEAST_SHARE)).nonzero().flatten().tolist()
            trip = self._trip(watched, small, mean.exp()) if small else None
            if trip is not None:
                found.append((watched, trip))
        return found

    def _trip(self, watched: Watched, blocks: list[int], shares: Tensor) -> Trip | None:
        assert self.baseline is not None
        worst = min(blocks, key=lambda at: float(shares[at]))
        more = f" and {len(blocks) - 1} further blocks" if len(blocks) > 1 else ""
        share = float(shares[worst])
        return watched.trip(
            self.name,
            TripKind.DAMAGE,
            f"the output of {self.baseline.names[worst]}{more} is {share:.3g} of its size at the start",
            share=(share, LEAST_SHARE),
        )
