"""Plain modules that the config declares quantised get a line in the skip list."""

from __future__ import annotations

from degarble.evidence.declared_form import is_plain_matrix
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.skip_entries import SkipEntries


@repair("add-skip-entry")
def add_skip_entry(job: Job) -> None:
    """Add the full names of the modules that are stored plain to the skip list.

    ## What it changes
    The skip list alone, which is created under the key that most engines read if there is none; a config that no stored
    module bears out is removed.

    ## Why there is one answer
    The weights are plain values, and every engine takes a full name to mean this module and no other.

    ## What it cannot do
    Tell a weight that was meant to stay plain from one that lost its codes: the values decide, which the value rules
    judge. If most of the declared modules are plain, the config as a whole is wrong, and listing them is a judgement.
    """
    modules = [module for module in job.modules_at_places() if is_plain_matrix(module)]
    if not modules:
        raise CannotRepair("no module of the finding is stored as a plain matrix")
    if not any(module.form.is_quantized for module in job.modules.values()):
        job.judge("nothing that is stored is quantised: the quantisation config is taken out")
        job.drop_key(job.declaration.file, job.declaration.key, "nothing is stored quantised")
        return
    if any((place.file or "").endswith(".json") for place in job.places) and job.finding.rule == "QNT109":
        job.judge("most of the declared modules are plain: the quantisation config may be what is wrong")
    entries = SkipEntries(job)
    entries.write((*entries.entries, *(entries.full_entry(module.name) for module in modules)), "added, as stored")
