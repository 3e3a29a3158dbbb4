"""Norm weights from which one was subtracted once too often."""

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
    for module in job.modules_at_places():
        stored = module.array(PAYLOAD)
        job.set_part(module, PAYLOAD, (stored.astype(np.float32) + 1).astype(stored.dtype), "one added")
