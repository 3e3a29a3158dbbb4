"""Faults of a layer's halves."""

from __future__ import annotations

from torch import Tensor

from degarble_engine.planted.interface import Victim, live_fault, require

FACTOR = 0.08
"""NUM306's model case: a fall by 92 %."""


@live_fault(seen_by="activation-collapse")
def feed_forward_collapsed(victim: Victim) -> None:
    """The last layer's feed-forward block loses 92 % of its output from some step on."""
    engine, tap = victim.engine, victim.surroundings.tap
    layer = engine.model.layers[-1]
    require(hasattr(layer, "_feed_forward"), "feed-forward-collapsed", "the last layer has no such block")
    if tap is not None:
        tap.remove()
    block = layer._feed_forward

    def collapsed(hidden: Tensor) -> Tensor:
        found = block(hidden)
        return found if engine.num_steps < victim.first_step else found * FACTOR

    layer._feed_forward = collapsed
    if tap is not None:
        tap.install(engine.model.layers)  # above the fault, where a tap would be
