"""Plants QNT121."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location


@fault("QNT121")
def kv_scale_misplaced(patient: Patient) -> Location:
    """Hang the key scale of one layer under its output projection."""
    name = patient.pick([name for name, kind in _placed(patient).items() if kind == "k_scale"])
    attention = _attention(name)
    return _moved(patient, name, f"{attention}.o_proj.k_scale")


@fault("QNT121")
def kv_scales_of_a_layer_outside_attention(patient: Patient) -> Location:
    """Hang both scales of one layer under the layer itself, where another layer keeps its own."""
    placed = _placed(patient)
    layers = sorted({_layer(name) for name in placed})
    if len(layers) < 2:
        raise NotApplicable("one layer only")
    layer = patient.pick(layers)
    places = [_moved(patient, name, f"{layer}.{kind}") for name, kind in placed.items() if _layer(name) == layer]
    return places[0]


@fault("QNT121")
def kv_scales_misplaced_everywhere(patient: Patient) -> Location:
    """Hang all scales under `attn` where the model says `self_attn`, as an exporter with names of its own does."""
    places = [_moved(patient, name, f"{_layer(name)}.attn.{kind}") for name, kind in _placed(patient).items()]
    return patient.pick(places)


def _placed(patient: Patient) -> dict[str, str]:
    scales = dict(patient.evidence.find("kv_scales") or {})
    if not scales or patient.evidence.find("stray_kv_scales") or not all(".self_attn." in name for name in scales):
        raise NotApplicable("no scales of the KV cache that are where engines look")
    return scales


def _layer(name: str) -> str:
    return name.partition(".self_attn.")[0]


def _attention(name: str) -> str:
    return f"{_layer(name)}.self_attn"


def _moved(patient: Patient, name: str, to: str) -> Location:
    file = patient.workspace.holder(name).file
    patient.workspace.rename(name, to)
    return Location(file=file, tensor=to, module=to.rpartition(".")[0])
