"""Companions of a quantised form that stayed beside a plain weight."""

from __future__ import annotations

from degarble.fixes.interface import repair
from degarble.fixes.job import Job


@repair("restore-payload")
def drop_orphans(job: Job) -> None:
    """Drop scales and other companions that belong to no stored codes.

    ## What it changes
    The named companions are taken out of their files and of the index. The plain weight beside them stays.

    ## Why there is one answer
    There is not: the plain weight may be raw codes that were never multiplied by these scales. A reference decides it.

    ## What it cannot do
    Bring back a payload. A companion without any weight beside it is left alone: fetch the payload.
    """
    modules = job.modules_at_places()
    lacking = [module for module in modules if module.payload is None]
    if lacking:
        raise job.cannot("the codes are not stored", [part.name for m in lacking for part in m.parts.values()])
    job.judge("the plain weights are taken to be right, and the companions to be left over")
    for module in modules:
        for role in module.form.orphaned:
            job.drop_tensor(module.parts[module.form.roles[role]], "belongs to no codes")
