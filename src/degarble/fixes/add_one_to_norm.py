"""Norm weights from which one was subtracted, or to which it was added, once too often."""

from __future__ import annotations

import numpy as np

from degarble.fixes.interface import repair
from degarble.fixes.job import Job
from degarble.formats.interface import PAYLOAD


@repair("add-one-to-norm")
def add_one_to_norm(job: Job) -> None:
    """Add one to norm weights that hold w - 1 in a family that multiplies by w.

    ## What it changes
    The values of the named norms, in their stored type.

    ## Why there is one answer
    There is not quite: nearly all values are negative, which no trained norm of this convention is, but a conversion in
    16 bits has rounded w - 1, so that the last bits of values far from one are lost. A reference gives them exactly.

    ## What it cannot do
    Tell a norm that was never trained.
    """
    job.judge("what was subtracted in 16 bits comes back with another rounding")
    _shift(job, 1, "one added")


@repair("subtract-one-from-norm")
def subtract_one_from_norm(job: Job) -> None:
    """Subtract one from norm weights to which a conversion added it twice.

    ## What it changes
    The values of the named norms, in their stored type.

    ## Why there is one answer
    There is not quite: with one subtracted, the gain is that of the same norm in other layers, but a sum that was
    rounded to 16 bits has lost last bits. A reference gives them exactly.

    ## What it cannot do
    Tell a norm that was scaled by a fold: that fits its linears, and is not found.
    """
    job.judge("what was added in 16 bits comes off with another rounding")
    _shift(job, -1, "one subtracted")


def _shift(job: Job, step: int, what: str) -> None:
    for module in job.modules_at_places():
        stored = module.array(PAYLOAD)
        job.set_part(module, PAYLOAD, (stored.astype(np.float32) + step).astype(stored.dtype), what)
