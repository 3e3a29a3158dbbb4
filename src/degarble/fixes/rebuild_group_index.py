"""A group index that rises from group to group."""

from __future__ import annotations

import numpy as np

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job


@repair("rebuild-group-index")
def rebuild_group_index(job: Job) -> None:
    """Write the group index that a module without activation order has: input i belongs to group i / group size.

    ## What it changes
    The group index of the named modules.

    ## Why there is one answer
    There is not: codes do not tell the order. If the config declares no activation order the rising index is what it
    promises, so the step counts as a judgement then.

    ## What it cannot do
    Bring back a shuffled order. If the config declares one, the index has to be fetched.
    """
    for module in job.modules_at_places():
        scheme = job.declaration.scheme_for(module.name)
        size = module.form.scheme.group_size if module.form.scheme is not None else None
        if scheme is None or scheme.act_order == "group" or not size:
            part = module.part("g_idx")
            text = f"{module.name}: the order of its inputs was in the index that is lost"
            raise job.cannot(text, [part.name] if part is not None else [])
        job.judge("no activation order is declared, so the index is taken to rise")
        index = module.array("g_idx")
        job.set_part(module, "g_idx", (np.arange(index.size) // size).astype(index.dtype), "rising")
    if not job.edits:
        raise CannotRepair("the index rises already")
