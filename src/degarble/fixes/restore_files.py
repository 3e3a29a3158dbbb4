"""Exact copies of whole files from the reference."""

from __future__ import annotations

from degarble.checkpoint.folder import WEIGHT_SUFFIXES
from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference, begins_alike, is_mostly_alike, sha256_of


def restore_file(job: Job, reference: Reference, name: str) -> None:
    """Replace a broken or absent file by the reference's, after proof that it is the same file.

    The proof: a digest that came with the broken file; or all that is left of a cut file, or most of the bytes of a
    file of equal size; or modules that other files hold, or intact ones of this file. Raises CannotRepair.
    """
    files = reference.source.files()
    if name not in files:
        raise CannotRepair(f"the reference has no {name}")
    digests = job.evidence.find("digests") or {}
    if name in digests:
        if sha256_of(reference.source, name) != digests[name].sha256:
            raise CannotRepair(f"the reference's {name} has another digest than {digests[name].origin} gives")
    elif not _is_same_file(job, reference, name, files[name]):
        _require_same_model(job, reference, name)
    job.copy_file(name, reference.source, name)


def _is_same_file(job: Job, reference: Reference, name: str, size: int) -> bool:
    """Whether the bytes that are left prove it."""
    source = job.evidence.get("source")
    there = source.files().get(name, 0)
    if not there or name.endswith(".json"):
        return False
    if there == size:
        return is_mostly_alike(source, reference.source, name, size)
    return begins_alike(source, reference.source, name, min(there, size))


def _require_same_model(job: Job, reference: Reference, name: str) -> None:
    """By other modules. A model in a single file that is gone is the reference's model, if the configs agree."""
    weights = [file for file in job.workspace.files() if file.endswith(WEIGHT_SUFFIXES)]
    if weights == [name] and not job.evidence.get("source").files().get(name):
        mine, theirs = (evidence.find("config_file") for evidence in (job.evidence, reference.evidence))
        if mine is not None and theirs is not None and mine.problem is None and mine.value == theirs.value:
            return
    modules = job.evidence.find("modules") or {}
    inside = {module.name for module in modules.values() if module.any_part.file == name}
    named = {place.module for place in job.places if place.module}
    reference.require_same_export(job.evidence, inside if len(inside) < len(modules) else named)
