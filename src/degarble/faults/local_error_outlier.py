"""Plants DIV902."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location

FACTOR = 0.9
"""Within what WGT228 allows, so that only a run beside the reference tells it."""


@fault("DIV902", needs_reference=True)
def local_error_outlier(patient: Patient) -> Location:
    """Make one linear a tenth smaller."""
    module = patient.pick(patient.modules(is_linear))
    if module.form.is_quantized:
        replace_values(patient, module, scales=module.scales() * FACTOR)
    else:
        replace_values(patient, module, codes=module.dequantize() * FACTOR)
    return Location(module=module.canonical, layer=module.layer)
