"""A grid of block scales in the shape that the blocks give."""

from __future__ import annotations

import numpy as np

from degarble.fixes.interface import repair
from degarble.fixes.job import Job
from degarble.formats.interface import StoredModule


@repair("reshape-grid")
def reshape_grid(job: Job) -> None:
    """Turn a transposed grid of scales back, or lay a flattened one out in rows.

    ## What it changes
    The shape of the grids of the named modules, and the order of a transposed one; every scale stays.

    ## Why there is one answer
    The grid has exactly the scales that the blocks need, and its shape tells what was done to it. That nothing else was
    done is a judgement.

    ## What it cannot do
    Bring back rows of blocks that were cut off.
    """
    for module in job.modules_at_places():
        wanted = _grid(job, module)
        stored = module.array("scale")
        job.judge("the shape of a grid is taken to tell all that was done to it")
        if wanted is not None and stored.shape == wanted[::-1] and stored.ndim == 2:
            job.set_part(module, "scale", np.ascontiguousarray(stored.T), "turned back")
        elif wanted is not None and stored.ndim == 1 and stored.size == wanted[0] * wanted[1]:
            job.set_part(module, "scale", stored.reshape(wanted), "laid out in rows")
        else:
            text = f"{module.name}: {list(stored.shape)} scales cannot become the grid {list(wanted or ())}"
            raise job.cannot(text, [module.parts[module.form.roles["scale"]].name])


def _grid(job: Job, module: StoredModule) -> tuple[int, int] | None:
    """Rows and columns of blocks."""
    declared = job.declaration.scheme_for(module.name)
    payload = module.payload
    if declared is None or declared.block_shape is None or payload is None or len(payload.shape) != 2:
        return None
    (rows, columns), (high, wide) = payload.shape, declared.block_shape
    return (-(-rows // high), -(-columns // wide)) if high > 0 and wide > 0 else None
