"""An activation order without groups is taken out of the config."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job


@repair("remove-actorder")
def remove_actorder(job: Job) -> None:
    """Set `actorder` to null where there are no groups that could be ordered.

    ## What it changes
    The named key of the quantisation config.

    ## Why there is one answer
    Without groups the key has no meaning, and nothing that is stored depends on it.

    ## What it cannot do
    Nothing is left to do: readers that ignored the key read the same as before.
    """
    for place in job.places:
        if place.file is None or place.key is None:
            raise CannotRepair("the finding names no key")
        job.set_key(place.file, place.key, None, "no groups to order")
