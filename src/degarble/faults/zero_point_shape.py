"""Plants QNT116."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import quantized_linears
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT116")
def zero_point_shape(patient: Patient) -> Location:
    """Store the zero points of one module unpacked, one a byte, in the shape of its scales."""
    module = patient.pick(_packed(patient))
    _unpack(patient, module)
    return _place(module)


@fault("QNT116")
def all_zero_points_unpacked(patient: Patient) -> Location:
    """Store the zero points of every module unpacked."""
    modules = _packed(patient)
    for module in modules:
        _unpack(patient, module)
    return _place(modules[0])


@fault("QNT116")
def zero_points_transposed(patient: Patient) -> Location:
    """Transpose the packed zero points of one module."""
    module = patient.pick(
        m for m in _packed(patient) if m.array("zero_point").shape[0] != m.array("zero_point").shape[1]
    )
    patient.workspace.set(module.parts[module.form.roles["zero_point"]].name, module.array("zero_point").T)
    return _place(module)


def _unpack(patient: Patient, module: StoredModule) -> None:
    zeros: Array | None = module.zeros()
    if zeros is None:
        raise NotApplicable("no zero points")
    stored = module.array("scale").shape
    unpacked = zeros if zeros.shape == stored else zeros.T
    patient.workspace.set(module.parts[module.form.roles["zero_point"]].name, unpacked.astype(np.int8))


def _packed(patient: Patient) -> list[StoredModule]:
    """Modules whose zero points share words."""
    found = [
        module
        for module in quantized_linears(patient)
        if module.part("zero_point") is not None
        and module.part("scale") is not None
        and module.parts[module.form.roles["zero_point"]].dtype in ("I32", "U32")
        and len(module.parts[module.form.roles["zero_point"]].shape) == 2
    ]
    if not found:
        raise NotApplicable("no packed zero points")
    return found


def _place(module: StoredModule) -> Location:
    place = module.place("zero_point")
    return Location(file=place.file, tensor=place.tensor, module=module.name, layer=module.layer)
