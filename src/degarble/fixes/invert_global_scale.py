"""An NVFP4 global scale the right way up."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.fixes.interface import repair
from degarble.fixes.job import Job


@repair("invert-global-scale")
def invert_global_scale(job: Job) -> None:
    """Store the reciprocal of a global scale that is the wrong way up.

    ## What it changes
    One number for each named module.

    ## Why there is one answer
    As stored, the largest weight would be millions of times beyond or below what training leaves; the reciprocal gives
    a plausible one. No other number is in question.

    ## What it cannot do
    Give the last bit for certain: two neighbouring floats may have the same reciprocal.
    """
    for module in job.modules_at_places():
        job.set_part(module, "global_scale", reciprocal(module.array("global_scale")), "the reciprocal")


def reciprocal(stored: Array) -> Array:
    """The values whose reciprocals, in the stored type, are the stored ones: the nearest, or its neighbour."""
    nearest = (1 / stored).astype(stored.dtype)
    for candidate in (nearest, np.nextafter(nearest, np.inf), np.nextafter(nearest, 0)):
        if bool((1 / candidate == stored).all()):
            return np.asarray(candidate, stored.dtype)
    return nearest
