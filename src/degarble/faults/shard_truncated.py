"""Plants CKP101."""

from __future__ import annotations

from degarble.evidence.weights import Shard
from degarble.faults.interface import Patient, fault
from degarble.finding import Location


@fault("CKP101")
def shard_truncated(patient: Patient) -> Location:
    """Cut one weight file in the middle of its last tensor."""
    shard: Shard = patient.pick(patient.evidence.get("shards").values())
    last = max(shard.tensors.values(), key=lambda info: info.end)
    patient.workspace.truncate(shard.file, last.end - max(1, last.nbytes // 2))
    return Location(file=shard.file, tensor=last.name)
