"""Plants CKP102."""

from __future__ import annotations

from typing import Any

from degarble.evidence.weights import NUMBERED
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

INDEX = "model.safetensors.index.json"


def index_of(patient: Patient) -> dict[str, Any]:
    """The `weight_map` of the checkpoint, to be changed in place; a right one is written where there is none."""
    shards = patient.evidence.find("shards")
    if not shards or not all(name.endswith(".safetensors") for name in shards):
        raise NotApplicable("only safetensors have an index")
    index = patient.workspace.json(INDEX)
    if "weight_map" not in index:
        index["metadata"] = {}
        index["weight_map"] = {name: shard.file for shard in shards.values() for name in shard.tensors}
    found: dict[str, Any] = index["weight_map"]
    return found


@fault("CKP102")
def shard_missing(patient: Patient) -> Location:
    """Delete one weight file that the index names."""
    index = patient.evidence.find("index")
    if index is None or len(index.shards) < 2:
        raise NotApplicable("no index that names several files")
    gone: str = patient.pick(index.shards)
    patient.workspace.delete(gone)
    return Location(file=gone)


@fault("CKP102")
def shard_missing_in_numbering(patient: Patient) -> Location:
    """Number the only weight file as the first of two."""
    shards = patient.evidence.find("shards")
    if not shards or len(shards) != 1 or INDEX in patient.workspace.files():
        raise NotApplicable("needs one weight file without an index")
    (file,) = shards
    stem, _, suffix = file.rpartition(".")
    if NUMBERED.match(file):
        raise NotApplicable("the file is numbered already")
    patient.workspace.rename_file(file, f"{stem}-00001-of-00002.{suffix}")
    return Location(file=f"{stem}-00002-of-00002.{suffix}")


@fault("CKP102")
def shard_missing_in_split(patient: Patient) -> Location:
    """Let a GGUF header count two parts where there is one."""
    shards = patient.evidence.find("shards")
    if not shards or len(shards) != 1 or patient.evidence.find("gguf") is None:
        raise NotApplicable("needs one GGUF file")
    (file,) = shards
    edit: Any = patient.workspace.shard(file)
    edit.set_metadata("split.count", 2, (2, None))
    return Location(file=file, key="split.count")


@fault("CKP102")
def shard_missing_outside(patient: Patient) -> Location:
    """Let the index look for one tensor outside the folder."""
    weight_map = index_of(patient)
    name = patient.pick(weight_map)
    weight_map[name] = "../" + weight_map[name]
    return Location(file=INDEX, key=f"weight_map.{name}", tensor=name)
