"""Plants CKP104."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.shard_missing import INDEX, index_of
from degarble.finding import Location


@fault("CKP104")
def tensor_not_in_index(patient: Patient) -> Location:
    """Strike one tensor from the index."""
    weight_map = index_of(patient)
    name = patient.pick(weight_map)
    file = weight_map.pop(name)
    return Location(file=file, tensor=name)


@fault("CKP104")
def tensor_not_in_index_stale(patient: Patient) -> Location:
    """Leave the index of another split: twice as many files, none of which is there."""
    weight_map = index_of(patient)
    files = 2 * len(set(weight_map.values()))
    for number, name in enumerate(weight_map):
        weight_map[name] = f"old-{number % files + 1:05d}-of-{files:05d}.safetensors"
    return Location(file=INDEX)
