"""Faults of what the KV cache holds: the tables are right, the rows are not."""

from __future__ import annotations

import math

from degarble_engine.planted.interface import Victim, before_steps, live_fault

EVERY = 16
"""Steps from one damaged block to the next."""


@live_fault(seen_by="non-finite-logits")
def cache_holds_nan(victim: Victim) -> None:
    """A block of some request turns to NaN every 16 steps, as an uninitialised or badly copied one does."""
    _damage_blocks(victim, math.nan)


@live_fault(seen_by="")
def cache_holds_zeros(victim: Victim) -> None:
    """A block of some request is lost every 16 steps: its rows are zeros. Text may stay fluent; compare-dump sees it."""
    _damage_blocks(victim, 0.0)


def _damage_blocks(victim: Victim, value: float) -> None:
    engine = victim.engine

    def damage() -> None:
        tables = [one.live_blocks() for one in engine.manager.sequences.values() if one.num_computed]
        if (engine.num_steps - victim.first_step) % EVERY or not tables:
            return
        block = victim.rng.choice(tables)[0]  # the first one is read by every later token
        for views in engine.cache.views.values():
            for view in views:
                view[block] = value

    before_steps(victim, damage)
