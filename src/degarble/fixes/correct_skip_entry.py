"""Entries of the skip list that no module answers to."""

from __future__ import annotations

from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.skip_entries import SkipEntries


@repair("correct-skip-entry")
def correct_skip_entry(job: Job) -> None:
    """Replace an idle entry by the full name of the plain module it resembles, or drop it.

    ## What it changes
    The skip list alone.

    ## Why there is one answer
    There is not: whether a name was misspelt or is a leftover is a guess, guided by what is stored. A module that is
    stored quantised cannot have been meant.

    ## What it cannot do
    Find out what a pattern for another family was to do here.
    """
    entries = SkipEntries(job)
    idle = {str(one.measured["entry"]): one.location.module for one in job.singles() if "entry" in one.measured}
    if not idle:
        raise CannotRepair("the finding names no entry")
    job.judge("an entry without a module is misspelt or a leftover")
    wanted: list[str] = []
    for entry in entries.entries:
        if entry not in idle:
            wanted.append(entry)
            continue
        near = job.modules.get(idle[entry] or "")
        if near is not None and near.payload is not None and not near.form.is_quantized:
            wanted.append(entries.full_entry(near.name))
    entries.write(wanted, "named in full, or dropped")
