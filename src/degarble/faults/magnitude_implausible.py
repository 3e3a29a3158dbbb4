"""Plants WGT229."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.layer_series import MIN_LAYERS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule

FACTOR = 16
LARGEST = 7


@fault("WGT229")
def magnitude_implausible(patient: Patient) -> Location:
    """Store the signed 4-bit codes of one module as if they were its weights."""
    module = patient.pick(_plain(patient))
    replace_values(patient, module, codes=_codes(module))
    return module.place()


@fault("WGT229")
def codes_as_values_everywhere(patient: Patient) -> Location:
    """Store the codes of every module as if they were weights."""
    modules = _plain(patient)
    for one in modules:
        replace_values(patient, one, codes=_codes(one))
    return patient.pick(modules).place()


@fault("WGT229")
def weight_multiplied(patient: Patient) -> Location:
    """Multiply one plain weight by 16."""
    modules = _plain(patient)
    layers: dict[str, set[int | None]] = {}
    for one in modules:
        layers.setdefault(one.template, set()).add(one.layer)
    enough = [one for one in modules if len(layers[one.template]) >= MIN_LAYERS and one.layer]
    if not enough:
        raise NotApplicable(f"fewer than {MIN_LAYERS} layers: no peers")
    module = patient.pick(enough)
    replace_values(patient, module, codes=module.dequantize() * FACTOR)
    return module.place()


def _plain(patient: Patient) -> list[StoredModule]:
    def suitable(module: StoredModule) -> bool:
        payload = module.payload
        is_float = payload is not None and payload.dtype in ("BF16", "F16", "F32")
        return is_linear(module) and not module.form.is_quantized and is_float and len(module.form.shape or ()) == 2

    return patient.modules(suitable)


def _codes(module: StoredModule) -> Array:
    values = module.dequantize()
    scale = np.abs(values).max(axis=1, keepdims=True) / LARGEST
    return np.round(values / np.where(scale > 0, scale, 1))
