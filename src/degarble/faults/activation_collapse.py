"""Plants NUM306."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location

FACTOR = 0.08
"""The model case: the last feed-forward blocks lost 92 % of their standard deviation."""


@fault("NUM306", needs_reference=True)
def activation_collapse(patient: Patient) -> Location:
    """Scale the down_proj of the last layers and compensate nowhere."""
    found = patient.modules(lambda one: is_linear(one) and (one.canonical or "").endswith("mlp.down_proj"))
    last = max(one.layer or 0 for one in found)
    hit = [one for one in found if one.layer is not None and one.layer > last - 3]
    if not hit:
        raise NotApplicable("no down_proj in the last layers")
    for module in hit:
        if module.form.is_quantized:
            replace_values(patient, module, scales=module.scales() * FACTOR)
        else:
            replace_values(patient, module, codes=module.dequantize() * FACTOR)
    return Location(layer=last)
