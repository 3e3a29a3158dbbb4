"""The skip list in full names, which all engines read alike."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.evidence.declared_form import DeclaredForms, Promise, is_mtp
from degarble.evidence.skips import entries_about
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job
from degarble.fixes.skip_entries import SkipEntries
from degarble.formats.interface import StoredModule


@repair("expand-skip-list")
def expand_skip_list(job: Job) -> None:
    """Replace entries that engines read differently, or that contradict the disk, by full names of plain modules.

    ## What it changes
    The skip list alone. An entry that reaches the same plain modules under every reading stays. Any other is replaced
    by the full names of the plain modules it reaches under some reading; plain modules that no entry reaches under
    all readings are added.

    ## Why there is one answer
    Which modules are plain is seen on disk, and a full name means the same to every engine.

    ## What it cannot do
    Shorten a list. Overrides of bits or group size in GPTQ's table stay as they are.
    """
    entries = SkipEntries(job)
    missing = list(_unlisted(job))
    meant = {entry for name in missing for entry in entries_about(entries.entries, name)}
    kept: list[str] = []
    named: list[str] = []
    for entry in entries.entries:
        reached = frozenset().union(*entries.reached(entry))
        if _is_clear(job, entries, entry) and (reached or entry not in meant):
            kept.append(entry)
        else:
            named += _plain_names(job, reached)
    full = [entries.full_entry(name) for name in dict.fromkeys((*named, *missing))]
    entries.write((*kept, *full), "full names, as stored")


@repair("remove-skip-entry")
def remove_skip_entry(job: Job) -> None:
    """Take modules that are stored quantised off the skip list.

    ## What it changes
    The skip list alone: entries that reach such a module are replaced by the full names of the plain modules they
    reach besides.

    ## Why there is one answer
    The stored codes have all companions that their format needs, so they are meant to be read as codes.

    ## What it cannot do
    If a companion is missing, taking the module off the list is a judgement: the codes cannot be read either way.
    """
    lacking = [module.name for module in job.modules_at_places() if module.form.missing]
    if lacking:
        job.judge(f"{lacking[0]} lacks companions, so that its codes cannot be read")
    expand_skip_list(job)


def _is_clear(job: Job, entries: SkipEntries, entry: str) -> bool:
    """Overrides, entries that nothing answers to, and those that every reading takes to mean the same plain modules."""
    if entries.is_table and not entry.startswith("-:"):
        return True
    reached = set(entries.reached(entry))
    return len(reached) <= 1 and not any(job.modules[name].form.is_quantized for name in frozenset().union(*reached))


def _plain_names(job: Job, names: frozenset[str]) -> list[str]:
    return [name for name in sorted(names) if not job.modules[name].form.is_quantized]


def _unlisted(job: Job) -> Iterator[str]:
    """Plain modules that some engine would build quantised."""
    forms: DeclaredForms | None = job.evidence.find("declared_forms")
    if forms is None:
        raise CannotRepair("the config declares no forms")
    architecture = job.evidence.find("architecture")
    skips = SkipEntries(job).skips
    is_tied = architecture is not None and architecture.tied
    for members in skips.stands_for.values():
        for module in members:
            if _is_plain(module) and not (module.kind == "head" and is_tied) and not is_mtp(module, architecture):
                is_open = forms.of(module) in (Promise.QUANTIZED, Promise.DISPUTED)
                if is_open and module.name not in skips.listed_by_all:
                    yield module.name


def _is_plain(module: StoredModule) -> bool:
    return not module.form.is_quantized and module.payload is not None
