"""Plants CKP110."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.shard_edit import SafetensorsEdit
from degarble.checkpoint.tensor_data import Array
from degarble.evidence.weights import Shard
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("CKP110")
def companion_in_other_revision(patient: Patient) -> Location:
    """Stamp one of several shards as another tool would."""
    shards = _several(patient)
    edit = patient.workspace.shard(patient.pick(sorted(shards)[1:]))
    if not isinstance(edit, SafetensorsEdit):
        raise NotApplicable("safetensors only")
    edit.metadata["format"] = "mlx" if edit.metadata.get("format") != "mlx" else "pt"
    edit.changed = True
    return Location(file=edit.file)


@fault("CKP110")
def companion_in_other_revision_dtype(patient: Patient) -> Location:
    """Store all plain tensors of one shard in the other half precision."""
    shards = _several(patient)
    file = sorted(shards)[-1]
    tensors = shards[file].tensors.values()
    if {info.dtype for info in tensors} != {"BF16"}:
        raise NotApplicable("needs a shard of plain BF16 tensors")
    for info in tensors:
        patient.workspace.set(info.name, _half(patient, info))
    return Location(file=file)


def _half(patient: Patient, info: TensorInfo) -> Array:
    values: Array = patient.evidence.get("reader").read(info).astype(np.float32)
    return np.clip(values, -65504, 65504).astype(np.float16)


def _several(patient: Patient) -> dict[str, Shard]:
    shards: dict[str, Shard] = patient.evidence.find("shards") or {}
    if len(shards) < 2 or not all(name.endswith(".safetensors") for name in shards):
        raise NotApplicable("needs several safetensors files")
    return shards
