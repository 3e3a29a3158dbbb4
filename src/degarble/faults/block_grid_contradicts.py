"""Plants QNT105."""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of, quantized_linears
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT105")
def block_grid_contradicts(patient: Patient) -> Location:
    """Halve the block size in the config."""
    declaration, module = declaration_of(patient), patient.pick(_block_modules(patient))
    key = declared_key(declaration, module.name, "block_grid")
    holder: Any = patient.workspace.json(declaration.file)
    *path, name = key.split(".")
    for part in path:
        holder = holder[part]
    if not isinstance(holder.get(name), list):
        raise NotApplicable("the config gives no block size")
    holder[name] = [size // 2 for size in holder[name]]
    return Location(file=declaration.file, key=key)


@fault("QNT105")
def block_size_lost(patient: Patient) -> Location:
    """Drop the block size from the config of native FP8: engines then expect one scale per tensor."""
    declaration = declaration_of(patient)
    _block_modules(patient)
    config = config_object(patient, declaration)
    if config.pop("weight_block_size", None) is None:
        raise NotApplicable("the config gives no block size")
    return Location(file=declaration.file, key=f"{declaration.key}.weight_block_size".lstrip("."))


@fault("QNT105")
def one_grid_transposed(patient: Patient) -> Location:
    """Transpose the grid of one module."""
    return _change_grid(patient, lambda grid: grid.T, lambda shape: shape[0] != shape[1])


@fault("QNT105")
def one_grid_flattened(patient: Patient) -> Location:
    """Store the grid of one module as a list of numbers."""
    return _change_grid(patient, lambda grid: grid.reshape(-1), lambda shape: min(shape) > 1)


@fault("QNT105")
def one_grid_cut(patient: Patient) -> Location:
    """Drop the last row of blocks from the grid of one module."""
    return _change_grid(patient, lambda grid: grid[:-1], lambda shape: shape[0] > 2)


def _change_grid(patient: Patient, change: Any, suits: Any) -> Location:
    module = patient.pick(m for m in _block_modules(patient) if suits(m.parts[m.form.roles["scale"]].shape))
    grid: Array = module.array("scale")
    place = module.place("scale")
    assert place.tensor is not None
    patient.workspace.set(place.tensor, np.ascontiguousarray(change(grid)))
    return Location(file=place.file, tensor=place.tensor, module=module.name, layer=module.layer)


def _block_modules(patient: Patient) -> list[StoredModule]:
    modules = [
        module
        for module in quantized_linears(patient)
        if module.form.scheme is not None
        and module.form.scheme.strategy == "block"
        and module.part("scale") is not None
        and len(module.parts[module.form.roles["scale"]].shape) == 2
    ]
    if not modules:
        raise NotApplicable("no block scales")
    return modules
