"""The label that says how zero points are stored."""

from __future__ import annotations

from degarble.checkpoint.dotted import value_at
from degarble.evidence.declaration import quantization_objects
from degarble.fixes.interface import CannotRepair, repair
from degarble.fixes.job import Job

LABELS = ("checkpoint_format", "format")
VERSIONS = ("gptq", "gptq_v2")


@repair("correct-checkpoint-format")
def correct_checkpoint_format(job: Job) -> None:
    """Write the GPTQ version that the zero points were stored in.

    ## What it changes
    `checkpoint_format` and `format`, wherever the config or a sidecar names a GPTQ version; `checkpoint_format` in the
    governing config if none does.

    ## Why there is one answer
    There are two versions, and under one of them the mean code of nearly every group lies one step beside its zero
    point.

    ## What it cannot do
    Teach an engine the other version. Some know only one, and then the file has to be converted.
    """
    version = job.finding.bound.get("written_by")
    if version not in VERSIONS:
        raise CannotRepair("the finding names no version")
    for file, key, raw, _ in quantization_objects(job.need("json_files")):
        for label in LABELS:
            if str(raw.get(label)).lower() in VERSIONS:
                job.set_key(file, f"{key}.{label}".lstrip("."), version, "as the zero points are stored")
    place = job.finding.location
    if place.file and place.key and value_at(job.json(place.file), place.key) != version:
        job.set_key(place.file, place.key, version, "as the zero points are stored")
