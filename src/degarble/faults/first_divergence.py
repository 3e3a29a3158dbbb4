"""Plants DIV901."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location


@fault("DIV901", needs_reference=True)
def first_divergence(patient: Patient) -> Location:
    """Flip the sign of one plain linear of the last layer: everything before it stays the reference's."""
    found = patient.modules(lambda one: is_linear(one) and not one.form.is_quantized)
    last = max(one.layer or 0 for one in found)
    module = patient.pick(one for one in found if one.layer == last)
    replace_values(patient, module, codes=-module.dequantize())
    return Location(layer=last)
