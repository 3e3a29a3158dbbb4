"""Plants NUM302."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule

LARGEST_WEIGHT = 30_000.0
"""Still a number of fp16, so that it is the arithmetic that overflows and not the weight."""


@fault("NUM302")
def half_overflow(patient: Patient) -> Location:
    """Make up_proj and down_proj of one layer as large as fp16 lets weights be: their outputs are not numbers of it."""
    found = patient.modules(lambda one: is_linear(one) and (one.canonical or "").endswith("mlp.up_proj"))
    up = patient.pick(one for one in found if one.expert is None)
    down = patient.modules(lambda one: one.canonical == (up.canonical or "").replace("up_proj", "down_proj"))[0]
    for module in (up, down):
        grow(patient, module, LARGEST_WEIGHT)
    return Location(layer=up.layer)


def grow(patient: Patient, module: StoredModule, largest: float) -> None:
    """Multiply a module by the power of two that brings its largest weight just below `largest`."""
    values = module.dequantize()
    now = float(np.abs(values).max())
    if now <= 0:
        raise NotApplicable(f"{module.name} is all zeros")
    factor = 2.0 ** np.floor(np.log2(largest / now))
    if module.form.is_quantized:
        replace_values(patient, module, scales=module.scales() * factor)
    else:
        replace_values(patient, module, codes=values * factor)
