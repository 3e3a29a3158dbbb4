"""Plants WGT212."""

from __future__ import annotations

from collections.abc import Callable

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.global_scale_reciprocal import DIVIDES
from degarble.faults.interface import Patient, fault
from degarble.faults.stored_values import edit_part
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("WGT212")
def global_scale_reciprocal(patient: Patient) -> Location:
    """Store every global scale the wrong way up."""
    return _invert(patient, _modules(patient))


@fault("WGT212")
def global_scale_reciprocal_in_one_module(patient: Patient) -> Location:
    """Store the global scale of one module the wrong way up."""
    return _invert(patient, [patient.pick(_modules(patient))])


@fault("WGT212")
def global_scale_reciprocal_in_one_layer(patient: Patient) -> Location:
    """Store the global scales of one layer the wrong way up."""
    layer = patient.pick(_modules(patient)).layer
    return _invert(patient, _modules(patient, lambda m: m.layer == layer))


def _modules(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> list[StoredModule]:
    return patient.modules(lambda m: m.form.format in DIVIDES and "global_scale" in m.form.roles and suitable(m))


def _invert(patient: Patient, modules: list[StoredModule]) -> Location:
    for module in modules:
        edit_part(patient, module, "global_scale", _invert_in_place)
    return modules[0].place("global_scale")


def _invert_in_place(array: Array) -> None:
    array[...] = 1 / array
