"""Plants CFG106."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.module_missing import drop_module
from degarble.finding import Location


@fault("CFG106")
def lm_head_missing(patient: Patient) -> Location:
    """Drop the head of an untied model."""
    architecture = _architecture_of_config(patient)
    if architecture.tied:
        raise NotApplicable("tied")
    head = patient.pick(patient.modules(lambda m: m.canonical == "lm_head"))
    place = drop_module(patient, head)
    return Location(tensor=place.tensor, module=head.name)


@fault("CFG106")
def head_untied_without_head(patient: Patient) -> Location:
    """Declare a tied model untied; it has no head of its own."""
    architecture = _architecture_of_config(patient)
    config = patient.workspace.json("config.json")
    if not architecture.tied or config.get("tie_word_embeddings") is not True:
        raise NotApplicable("not tied by its own config")
    if any(module.canonical == "lm_head" for module in patient.evidence.get("modules").values()):
        raise NotApplicable("a head is stored")
    config["tie_word_embeddings"] = False
    return Location(file="config.json", key="tie_word_embeddings")


def _architecture_of_config(patient: Patient):  # type: ignore[no-untyped-def]
    architecture = patient.evidence.find("architecture")
    if architecture is None or patient.evidence.get("is_gguf"):
        raise NotApplicable("no config.json of a known family")
    return architecture
