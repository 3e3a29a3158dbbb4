"""Plants QNT114."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.router_quantized import store_quantized
from degarble.faults.stored_plain_but_declared_quantized import drop_skip_entries
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT114")
def tied_head_quantized(patient: Patient) -> Location:
    """Add a quantised output head to a model whose head is its embedding."""
    embedding = _tied_embedding(patient)
    name = patient.evidence.get("prefix").on_disk("lm_head.weight").removesuffix(".weight")
    if name in patient.evidence.get("modules"):
        raise NotApplicable("a head is stored already")
    place = store_quantized(patient, embedding, name)
    _unlist(patient, "lm_head")
    return place


@fault("QNT114")
def tied_embedding_quantized(patient: Patient) -> Location:
    """Store the embedding of a tied model as codes."""
    embedding = _tied_embedding(patient)
    place = store_quantized(patient, embedding)
    _unlist(patient, "embed_tokens")
    return place


def _tied_embedding(patient: Patient) -> StoredModule:
    architecture = patient.evidence.find("architecture")
    if architecture is None or not architecture.tied or patient.evidence.get("is_gguf"):
        raise NotApplicable("not tied, or a format that quantises embeddings by design")
    return patient.pick(patient.modules(lambda m: m.canonical == "model.embed_tokens" and m.form.format == "plain"))


def _unlist(patient: Patient, part: str) -> None:
    declaration = patient.evidence.find("declaration")
    if declaration is not None and any(part in entry for skips in declaration.skips for entry in skips.entries):
        drop_skip_entries(patient, lambda entry: part in entry)
