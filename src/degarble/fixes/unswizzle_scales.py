"""Block scales in logical order."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.profile.swizzle import TILE_COLUMNS, TILE_ROWS, unswizzled


@repair("unswizzle-scales")
def unswizzle_scales(job: Job) -> None:
    """Take block scales out of a kernel's tile order.

    ## What it changes
    The order of the scales of the named modules. Every scale stays what it is.

    ## Why there is one answer
    A permutation loses nothing, and the kernels have one tile order. That the scales are in it is statistical evidence,
    so the step counts as a judgement.

    ## What it cannot do
    Undo another order, or padding that was cut off.
    """
    job.judge("the order of the scales is told by statistics, not by the file")
    for module in job.modules_at_places():
        table = module.array("scale")
        if table.ndim != 2 or table.shape[0] % TILE_ROWS or table.shape[1] % TILE_COLUMNS:
            raise CannotRepair(f"{module.name}: its scales are no whole tiles")
        job.set_part(module, "scale", unswizzled(table), "taken out of the tile order")
