"""Plants WGT210."""

from __future__ import annotations

import numpy as np

from degarble.faults.integer_codes import change_codes, integer_modules, same_layer, top_code
from degarble.faults.interface import Patient, fault
from degarble.finding import Location


@fault("WGT210")
def codes_use_half_range(patient: Patient) -> Location:
    """Clamp the codes of one module to the lower half, as signed packing does."""
    module = patient.pick(integer_modules(patient))
    half = top_code(module) // 2
    change_codes(patient, [module], lambda codes: np.minimum(codes, half))
    return module.place()


@fault("WGT210")
def upper_half_of_a_layer(patient: Patient) -> Location:
    """Clamp the codes of one layer or expert to the upper half."""
    modules = integer_modules(patient)
    module = patient.pick(modules)
    half = top_code(module) // 2
    change_codes(patient, same_layer(modules, module), lambda codes: np.maximum(codes, half + 1))
    return module.place()


@fault("WGT210")
def half_range_everywhere(patient: Patient) -> Location:
    """Clamp every code of the model to the lower half."""
    modules = integer_modules(patient)
    for one in modules:
        half = top_code(one) // 2
        change_codes(patient, [one], lambda codes, half=half: np.minimum(codes, half))  # type: ignore[misc]
    return patient.pick(modules).place()
