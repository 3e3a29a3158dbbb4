"""Exact copies of config keys and GGUF metadata from the reference."""

from __future__ import annotations

from typing import Any

from degarble.checkpoint.dotted import value_at
from degarble.checkpoint.gguf import GgufFile
from degarble.evidence.declaration import SIDECARS
from degarble.evidence.model import ModelConfig
from degarble.finding import Location
from degarble.fixes.interface import CannotRepair
from degarble.fixes.job import Job
from degarble.fixes.reference import Reference

COPIED = "copied from the reference"
QUANTIZATION = ("quantization_config", "compression_config", "quantization")


def restore_keys(job: Job, reference: Reference, places: list[Location]) -> None:
    """Give the named keys the reference's values; what it does not have is removed.

    A key of the quantisation config brings the whole object along, after proof that the reference is the same export:
    half of one config and half of another would describe neither. Raises CannotRepair.
    """
    for file, key in dict.fromkeys((place.file or "", place.key or "") for place in places):
        if file.endswith(".gguf"):
            _copy_metadata(job, reference, file, key)
        elif outer := _quantization_object(file, key):
            _copy_quantization(job, reference, file, outer)
        else:
            _require_same_family(job, reference)
            _copy_around(job, reference, file, key)


def _quantization_object(file: str, key: str) -> str | None:
    """The dotted key of the quantisation config around a key; the whole file is `.`; None for other keys."""
    if any(file == sidecar for sidecar, _ in SIDECARS):
        return "."
    parts = key.split(".")
    depth = next((number for number, part in enumerate(parts[:2]) if part in QUANTIZATION), None)
    return ".".join(parts[: depth + 1]) if depth is not None else None


def _copy_quantization(job: Job, reference: Reference, file: str, outer: str) -> None:
    """The object, and the same in sidecars that repeat it."""
    reference.require_same_export(job.evidence, ())
    if outer == ".":
        job.copy_file(file, reference.source, _there(reference, file))
        return
    _copy_key(job, reference, file, outer)
    for sidecar, _ in SIDECARS:
        if sidecar in reference.source.files():
            job.copy_file(sidecar, reference.source, sidecar)


def _copy_around(job: Job, reference: Reference, file: str, key: str) -> None:
    """The key; where it is the same in both, the object it belongs to, which may say too much or too little."""
    before = len(job.edits)
    _copy_key(job, reference, file, key)
    outer = key.rpartition(".")[0]
    if len(job.edits) == before and outer:
        _copy_key(job, reference, file, outer)


def _copy_key(job: Job, reference: Reference, file: str, key: str) -> None:
    value = _their_value(reference, file, key)
    if value is None:
        job.drop_key(file, key, "removed, as in the reference")
    else:
        job.set_key(file, key, value, COPIED)


def _their_value(reference: Reference, file: str, key: str) -> Any:
    """Under the same dotted key, or where the reference's language model has it."""
    files = reference.evidence.find("json_files") or {}
    if file not in files:
        raise CannotRepair(f"the reference has no {file}")
    found = value_at(files[file].value, key)
    config = reference.evidence.find("model_config")
    if found is None and isinstance(config, ModelConfig) and config.gguf is None and file == config.file:
        outer, _, last = key.rpartition(".")
        return config.text.get(last) if outer.endswith("_config") or not outer else None
    return found


def _require_same_family(job: Job, reference: Reference) -> None:
    mine, theirs = (evidence.find("model_config") for evidence in (job.evidence, reference.evidence))
    if theirs is None:
        raise CannotRepair("the reference has no config")
    kinds = [config.text.get("model_type") for config in (mine, theirs) if config is not None]
    if len(kinds) == 2 and None not in kinds and kinds[0] != kinds[1]:
        raise CannotRepair(f"the reference is of another family: {str(kinds[1])[:80]!r}")


def _copy_metadata(job: Job, reference: Reference, file: str, key: str) -> None:
    gguf = reference.evidence.find("gguf")
    if gguf is None:
        raise CannotRepair("the reference is no GGUF file, and metadata of other forms is not translated")
    mine = job.evidence.find("gguf")
    if mine is not None and mine.architecture != gguf.architecture:
        raise CannotRepair(f"the reference is of another family: {str(gguf.architecture)[:80]!r}")
    before = len(job.edits)
    _copy_pair(job, gguf, file, key)
    if len(job.edits) == before and mine is not None and key.count(".") > 1:
        family = key.rpartition(".")[0] + "."
        for name in sorted({*mine.metadata, *gguf.metadata}):
            if name.startswith(family):
                _copy_pair(job, gguf, file, name)


def _copy_pair(job: Job, gguf: GgufFile, file: str, key: str) -> None:
    if key in gguf.metadata:
        job.set_metadata(file, key, gguf.metadata[key], gguf.value_types[key], COPIED)
    else:
        job.drop_metadata(file, key, "removed, as in the reference")


def _there(reference: Reference, file: str) -> str:
    if file not in reference.source.files():
        raise CannotRepair(f"the reference has no {file}")
    return file
