"""Blocks whose output has lost its size."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.baseline import Baseline
from degarble_engine.guards.block_tap import EVERY
from degarble_engine.guards.interface import Action, Guard, Surroundings
from degarble_engine.guards.watched import Watched
from degarble_engine.hooks import MAX_PEER_RATIO

NUM_MEASURES = 2
"""A block must be small in so many measured steps, one after the other: a single token may have nothing to add."""


class ActivationCollapse(Guard):
    """The output of an attention or feed-forward block falls below 8 % of what it was at the start (NUM306's bound).

    The incident's case is a fall by 92 % in the last feed-forward blocks. Each token is compared with the median of the
    same block in a run at the start, so that no reference model is needed.
    """

    name = "activation-collapse"
    default = Action.ANNOTATE
    bound = f"{EVERY * NUM_MEASURES} tokens"

    def __init__(self, surroundings: Surroundings) -> None:
        super().__init__(surroundings)
        self.baseline: Baseline | None = None
        self._least = torch.zeros(0)

    @property
    def silence(self) -> str | None:
        """See Guard."""
        tap = self.surroundings.tap
        if tap is None or self.baseline is None:
            return (tap.silence if tap is not None else None) or "no baseline could be measured at the start"
        return None

    def learn(self, baseline: Baseline | None) -> None:
        """Bounds from the run at the start."""
        self.baseline = baseline
        if baseline is not None:
            self._least = torch.tensor(baseline.median)[:, None] * MAX_PEER_RATIO

    def see_blocks(self, spread: Tensor, rows: Sequence[tuple[Watched, int]]) -> list[tuple[Watched, Trip]]:
        """`spread` [blocks, tokens of the step], and the token that is each answer's last."""
        if self.baseline is None:
            return []
        is_small = spread < self._least
        found: list[tuple[Watched, Trip]] = []
        if not bool(is_small.any()):
            for watched, _ in rows:
                watched.state.pop(self.name, None)
            return found
        for watched, row in rows:
            small = set(is_small[:, row].nonzero().flatten().tolist())
            before = watched.state.get(self.name)
            watched.state[self.name] = small
            lasting = sorted(small & before) if isinstance(before, set) else []
            trip = self._trip(watched, lasting, spread[:, row]) if lasting else None
            if trip is not None:
                found.append((watched, trip))
        return found

    def _trip(self, watched: Watched, blocks: list[int], spread: Tensor) -> Trip | None:
        assert self.baseline is not None
        worst = min(blocks, key=lambda at: float(spread[at]) / max(float(self._least[at]), 1e-30))
        more = f" and {len(blocks) - 1} further blocks" if len(blocks) > 1 else ""
        wanted = float(self._least[worst])
        return watched.trip(
            self.name,
            TripKind.DAMAGE,
            f"std of {self.baseline.names[worst]}{more} is {float(spread[worst]):.3g}, at the start "
            f"{self.baseline.median[worst]:.3g}",
            std=(float(spread[worst]), wanted),
        )
