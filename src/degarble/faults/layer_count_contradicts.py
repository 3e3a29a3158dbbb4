"""Plants CFG103."""

from __future__ import annotations

from degarble.evidence.model import ModelConfig
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location

KEY = "num_hidden_layers"


@fault("CFG103")
def layer_count_contradicts(patient: Patient) -> Location:
    """Declare one layer more than there is."""
    return _declare(patient, 1)


@fault("CFG103")
def layer_declared_away(patient: Patient) -> Location:
    """Declare one layer fewer than there is."""
    if _layers(patient) < 2:
        raise NotApplicable("one layer only")
    return _declare(patient, -1)


@fault("CFG103")
def last_layer_dropped(patient: Patient) -> Location:
    """Drop every tensor of the last layer."""
    return _drop(patient, _layers(patient) - 1)


@fault("CFG103")
def first_layer_dropped(patient: Patient) -> Location:
    """Drop every tensor of the first layer."""
    return _drop(patient, 0)


def _config(patient: Patient) -> ModelConfig:
    config: ModelConfig | None = patient.evidence.find("model_config")
    if config is None or patient.evidence.find("architecture") is None or KEY not in config.text:
        raise NotApplicable("no config of a known family")
    return config


def _layers(patient: Patient) -> int:
    layers: int = _config(patient).text[KEY]
    return layers


def _declare(patient: Patient, step: int) -> Location:
    config = _config(patient)
    place = config.place(KEY)
    if config.gguf is not None and place.file and place.key:
        shard = patient.workspace.shard(place.file)
        shard.set_metadata(place.key, config.gguf.metadata[place.key] + step)  # type: ignore[attr-defined]
    elif place.key == KEY:
        patient.workspace.json("config.json")[KEY] += step
    else:
        raise NotApplicable("the count is nested")
    return place


def _drop(patient: Patient, layer: int) -> Location:
    if _layers(patient) < 2:
        raise NotApplicable("one layer only")
    if patient.evidence.get("parameters").unknown:
        raise NotApplicable("names are wrong already")
    for module in patient.modules(lambda m: m.layer == layer and m.canonical is not None):
        for info in module.parts.values():
            patient.workspace.drop(info.name)
    for name in patient.evidence.get("kv_scales"):
        if f".{layer}." in name:
            patient.workspace.drop(name)
    return Location(layer=layer)
