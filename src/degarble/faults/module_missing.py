"""Plants CFG104."""

from __future__ import annotations

from collections.abc import Callable

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("CFG104")
def module_missing(patient: Patient) -> Location:
    """Drop one linear with all its companions."""
    return drop_module(patient, patient.pick(_needed(patient, lambda m: m.kind == "linear")))


@fault("CFG104")
def norm_missing(patient: Patient) -> Location:
    """Drop one norm."""
    return drop_module(patient, patient.pick(_needed(patient, lambda m: m.kind == "norm")))


@fault("CFG104")
def expert_missing(patient: Patient) -> Location:
    """Drop one projection of one expert."""
    return drop_module(patient, patient.pick(_needed(patient, lambda m: m.expert is not None)))


@fault("CFG104")
def router_missing(patient: Patient) -> Location:
    """Drop one router."""
    return drop_module(patient, patient.pick(_needed(patient, lambda m: m.kind == "router")))


@fault("CFG104")
def embedding_missing(patient: Patient) -> Location:
    """Drop the embedding."""
    return drop_module(patient, patient.pick(_needed(patient, lambda m: m.canonical == "model.embed_tokens")))


@fault("CFG104")
def module_missing_in_all_layers(patient: Patient) -> Location:
    """Drop one projection in every layer."""
    module = patient.pick(_needed(patient, lambda m: m.kind == "linear" and m.expert is None))
    place = drop_module(patient, module)
    for peer in patient.modules(lambda m: m.template == module.template):
        if peer is not module:
            drop_module(patient, peer)
    return place


def drop_module(patient: Patient, module: StoredModule) -> Location:
    """Remove every tensor of a module."""
    place = module.place()
    for info in module.parts.values():
        patient.workspace.drop(info.name)
    for name in patient.evidence.get("kv_scales"):
        if name.startswith(module.name + "."):
            patient.workspace.drop(name)
    return Location(tensor=place.tensor, module=module.name, layer=module.layer, expert=module.expert)


def _needed(patient: Patient, suitable: Callable[[StoredModule], bool]) -> list[StoredModule]:
    """Modules that the architecture cannot do without."""
    architecture = patient.evidence.find("architecture")
    if architecture is None:
        raise NotApplicable("unknown architecture")

    def is_needed(module: StoredModule) -> bool:
        if module.canonical in (None, "lm_head") or not suitable(module):
            return False
        parameter = architecture.match(f"{module.canonical}.weight") or architecture.match(module.canonical)
        return parameter is not None and parameter.needed

    return patient.modules(is_needed)
