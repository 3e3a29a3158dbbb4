"""Plants DIV903."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location

SHIFT = 8


@fault("DIV903", needs_reference=True)
def component_attributed(patient: Patient) -> Location:
    """Roll the inputs of one down_proj by eight places."""
    found = patient.modules(lambda one: is_linear(one) and (one.canonical or "").endswith("down_proj"))
    module = patient.pick(found)
    try:
        codes = np.roll(module.codes(), SHIFT, axis=-1)
    except ValueError as reason:
        raise NotApplicable(str(reason)) from None
    replace_values(patient, module, codes=codes)
    return Location(module=module.canonical, layer=module.layer)
