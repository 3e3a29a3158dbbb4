"""Plants CKP101."""

from __future__ import annotations

from degarble.evidence.weights import Shard
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("CKP101")
def shard_truncated(patient: Patient) -> Location:
    """Cut one weight file in the middle of its last tensor."""
    shard = _shard(patient)
    last = max(shard.tensors.values(), key=lambda info: info.end)
    patient.workspace.truncate(shard.file, last.end - max(1, last.nbytes // 2))
    return Location(file=shard.file, tensor=last.name)


@fault("CKP101")
def shard_truncated_in_header(patient: Patient) -> Location:
    """Cut one weight file inside its header."""
    shard = _shard(patient)
    start = shard.header.data_start if shard.header else shard.gguf.data_start if shard.gguf else 0
    patient.workspace.truncate(shard.file, start // 2)
    return Location(file=shard.file)


@fault("CKP101")
def shard_truncated_to_nothing(patient: Patient) -> Location:
    """Leave a weight file without a byte, as a full disk does."""
    shard = _shard(patient)
    patient.workspace.truncate(shard.file, 0)
    return Location(file=shard.file)


def _shard(patient: Patient) -> Shard:
    """A file that holds something to lose."""
    shards = patient.evidence.find("shards")
    if not shards:
        raise NotApplicable("no weight file")
    found: Shard = patient.pick(
        shard for shard in shards.values() if any(info.nbytes for info in shard.tensors.values())
    )
    return found
