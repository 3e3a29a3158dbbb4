"""Plants QNT117."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("QNT117")
def kv_scales_incomplete(patient: Patient) -> Location:
    """Drop the key or value scale of one layer."""
    name = patient.pick(_scales(patient))
    file = patient.workspace.holder(name).file
    patient.workspace.drop(name)
    return Location(file=file, tensor=name)


@fault("QNT117")
def kv_scales_missing_in_one_layer(patient: Patient) -> Location:
    """Drop both scales of one layer, where another keeps its own."""
    scales = _scales(patient)
    owners = sorted({name.rpartition(".")[0] for name in scales})
    if len(owners) < 2:
        raise NotApplicable("one layer only")
    owner = patient.pick(owners)
    for name in scales:
        if name.startswith(owner + "."):
            patient.workspace.drop(name)
    return Location(module=owner)


@fault("QNT117")
def value_scales_missing(patient: Patient) -> Location:
    """Drop the value scales of all layers."""
    scales = [name for name in _scales(patient) if name.endswith(".v_scale")]
    for name in scales:
        patient.workspace.drop(name)
    return Location(tensor=patient.pick(scales))


@fault("QNT117")
def key_scale_added_in_one_layer(patient: Patient) -> Location:
    """Add a key scale to one layer of a model that has no scales of the KV cache."""
    if patient.evidence.find("kv_scales") or patient.evidence.get("is_gguf"):
        raise NotApplicable("has scales of the KV cache, or a format without them")
    keys = patient.modules(lambda m: (m.canonical or "").endswith(".self_attn.k_proj"))
    attention = patient.pick(keys)
    module = attention.name.removesuffix(".k_proj")
    patient.workspace.add(attention.any_part.file, f"{module}.k_scale", np.array([0.04], np.float32))
    return Location(tensor=f"{module}.v_scale", module=module, layer=attention.layer)


@fault("QNT117")
def kv_cache_declared_without_scales(patient: Patient) -> Location:
    """Drop all scales of a KV cache that the config declares static."""
    declaration = patient.evidence.find("declaration")
    if declaration is None or declaration.kv_cache is None:
        raise NotApplicable("no quantised KV cache is declared")
    for name in _scales(patient):
        patient.workspace.drop(name)
    return Location(file=declaration.file)


def _scales(patient: Patient) -> list[str]:
    found = list(patient.evidence.find("kv_scales") or ())
    if not found:
        raise NotApplicable("no scales of the KV cache")
    return found
