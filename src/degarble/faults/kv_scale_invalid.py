"""Plants WGT224."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location


@fault("WGT224")
def kv_scale_invalid(patient: Patient) -> Location:
    """Set one scale of the KV cache to zero."""
    return _set(patient, [patient.pick(_scales(patient))], 0.0)


@fault("WGT224")
def kv_scale_not_finite(patient: Patient) -> Location:
    """Set one scale of the KV cache to NaN."""
    return _set(patient, [patient.pick(_scales(patient))], float("nan"))


@fault("WGT224")
def kv_scale_negative(patient: Patient) -> Location:
    """Set one scale of the KV cache to -1, the mark of "none" in some engines."""
    return _set(patient, [patient.pick(_scales(patient))], -1.0)


@fault("WGT224")
def kv_scales_implausible(patient: Patient) -> Location:
    """Set all key scales to 60,000."""
    scales = _scales(patient)
    kinds = patient.evidence.get("kv_scales")
    keys = [name for name in scales if kinds[name] in ("k_scale", "kv_scale")]
    return _set(patient, keys or scales, 60_000.0)


def _scales(patient: Patient) -> list[str]:
    found = [name for name, kind in (patient.evidence.find("kv_scales") or {}).items() if kind.endswith("scale")]
    if not found:
        raise NotApplicable("no scales of the KV cache")
    return found


def _set(patient: Patient, names: list[str], value: float) -> Location:
    tensors, reader = patient.evidence.get("tensors"), patient.evidence.get("reader")
    for name in names:
        stored = reader.read(tensors[name])
        overwrite(patient, tensors[name], np.full(stored.shape, value).astype(stored.dtype))
    return Location(file=tensors[names[0]].file, tensor=names[0])
