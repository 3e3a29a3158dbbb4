"""Plants CKP107."""

from __future__ import annotations

import msgspec

from degarble.checkpoint.interface import TensorInfo
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("CKP107")
def tensor_in_two_shards(patient: Patient) -> Location:
    """Copy a tensor into a second weight file, a new one where there is only one."""
    shards = patient.evidence.find("shards")
    if not shards or not all(name.endswith(".safetensors") for name in shards):
        raise NotApplicable("safetensors only")
    info: TensorInfo = patient.pick(info for shard in shards.values() for info in shard.tensors.values())
    stamp: dict[str, str] = {} if shards[info.file].header is None else shards[info.file].header.metadata
    others = [name for name in shards if name != info.file]
    data = patient.evidence.get("reader").raw(info).tobytes()
    if others:
        patient.workspace.shard(patient.pick(others)).set(info.name, info.dtype, info.shape, data)
    else:
        entry = {"dtype": info.dtype, "shape": info.shape, "data_offsets": (0, info.nbytes)}
        header = msgspec.json.encode({"__metadata__": stamp, info.name: entry})
        patient.workspace.write("copy.safetensors", len(header).to_bytes(8, "little") + header + data)
    return Location(tensor=info.name)
