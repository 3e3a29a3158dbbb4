"""Plants NUM304."""

from __future__ import annotations

from degarble.faults.half_overflow import grow
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear
from degarble.finding import Location

REACH = 800.0
"""Largest weight times the root of the width: queries and keys of some hundreds, products of some hundred thousand."""


@fault("NUM304")
def attention_logits_overflow(patient: Patient) -> Location:
    """Scale queries and keys of one layer so that each fits into fp16 and their product does not."""
    found = patient.modules(lambda one: is_linear(one) and (one.canonical or "").endswith("self_attn.q_proj"))
    query = patient.pick(found)
    name = query.canonical or ""
    key = patient.modules(lambda one: one.canonical == name.replace("q_proj", "k_proj"))[0]
    if any(one.canonical == name.replace("q_proj", "q_norm") for one in patient.modules()):
        raise NotApplicable("queries are normalised")
    for module in (query, key):
        width = module.form.shape[-1] if module.form.shape else 1
        grow(patient, module, 4 * REACH / width**0.5)
    return Location(layer=query.layer)
