"""Plants NUM307."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location


@fault("NUM307", needs_reference=True)
def error_outside_bound(patient: Patient) -> Location:
    """Give one quantised linear the codes of its neighbouring inputs: each pair of columns changes places."""
    module = patient.pick(patient.modules(lambda one: is_linear(one) and one.form.is_quantized))
    codes = np.array(module.codes())
    if codes.ndim != 2 or codes.shape[1] % 2:
        raise NotApplicable("no pairs of columns")
    swapped = codes.reshape(codes.shape[0], -1, 2)[:, :, ::-1].reshape(codes.shape)
    replace_values(patient, module, codes=np.ascontiguousarray(swapped))
    return Location(module=module.canonical, layer=module.layer)
