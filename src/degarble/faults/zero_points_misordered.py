"""Plants WGT207."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.integer_codes import integer_modules, same_layer
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.profile.joint import AWQ_ORDER


@fault("WGT207")
def zero_points_misordered(patient: Patient) -> Location:
    """Leave the zero points of one module in the order that AWQ's instructions like."""
    module = patient.pick(_suitable(patient))
    _reorder(patient, module)
    return module.place("zero_point")


@fault("WGT207")
def zero_points_of_a_layer_misordered(patient: Patient) -> Location:
    """The same in a whole layer."""
    modules = _suitable(patient)
    module = patient.pick(modules)
    for one in same_layer(modules, module):
        _reorder(patient, one)
    return module.place("zero_point")


@fault("WGT207")
def zero_points_rolled(patient: Patient) -> Location:
    """Shift the table of zero points by one output, in every module."""
    modules = _suitable(patient)
    for one in modules:
        replace_values(patient, one, zeros=np.roll(_zeros(one), 1, axis=0))
    return patient.pick(modules).place("zero_point")


def _suitable(patient: Patient) -> list[StoredModule]:
    found = [one for one in integer_modules(patient, with_zeros=True) if _zeros(one).shape[0] % 8 == 0]
    if not found:
        raise NotApplicable("no zero points that differ")
    return found


def _zeros(module: StoredModule) -> Array:
    zeros = module.zeros()
    if zeros is None:
        raise NotApplicable(f"{module.name} has no zero points")
    return zeros


def _reorder(patient: Patient, module: StoredModule) -> None:
    zeros = _zeros(module)
    ordered = zeros.reshape(-1, 8, zeros.shape[1])[:, list(AWQ_ORDER)]
    replace_values(patient, module, zeros=ordered.reshape(zeros.shape))
