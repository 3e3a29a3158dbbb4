"""Which lengths fit a time: one layer is run at a short length, in every arithmetic, and the rest is told from it.

Everything but attention grows with the number of tokens, attention with its square. The two are equal at about
`EVEN_TOKENS` on a model of 135M (docs/log.md); wider models spend more on the rest, so the estimate errs to the long side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from degarble_engine.numerics.tokens import random_batch
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.range_walk import first_layer
from degarble_engine.overflow.switches import Lane

PROBE_TOKENS = 128
EVEN_TOKENS = 2048


def affordable(
    model: WalkedModel,
    lanes: Sequence[Lane],
    lengths: Sequence[int],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[tuple[int, ...], dict[str, str]]:
    """The lengths that fit, the shortest at least; and what is to be said of those that do not."""
    probe = min(PROBE_TOKENS, max(lengths))
    start = clock()
    first_layer(model, random_batch(model.vocab_size, 1, probe), lanes)
    per_layer = clock() - start
    costs = {length: per_layer * model.num_layers * _effort(length) / _effort(probe) for length in sorted(lengths)}
    fitting = tuple(length for length, cost in costs.items() if cost <= seconds) or (min(lengths),)
    said = {
        f"length {length}": f"not run: about {cost:.0f} s, the budget is {seconds:g} s"
        for length, cost in costs.items()
        if length not in fitting
    }
    return fitting, said


def _effort(length: int) -> float:
    return length * (1 + length / EVEN_TOKENS)
