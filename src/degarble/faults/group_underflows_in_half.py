"""Plants WGT223."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.group_underflows_in_half import WIDE
from degarble.evidence.unit_values import ScaleGrid, unit_values
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import edit_part, is_linear
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD


@fault("WGT223")
def group_underflows_in_half(patient: Patient) -> Location:
    """Multiply one row of a plain linear by 2 ** -40."""
    module = patient.pick(
        patient.modules(lambda m: is_linear(m) and m.form.format == "plain" and m.any_part.dtype in WIDE)
    )
    row = patient.rng.randrange(module.any_part.shape[0])
    edit_part(
        patient, module, PAYLOAD, lambda array: np.multiply(array[row], 2.0**-40, out=array[row], casting="unsafe")
    )
    return replace(module.place(), row=row)


@fault("WGT223")
def group_scale_underflows_in_half(patient: Patient) -> Location:
    """Multiply one group scale of an integer weight, stored in bf16 or fp32, by 2 ** -30."""
    modules = patient.modules(
        lambda m: (
            is_linear(m)
            and (part := m.part("scale")) is not None
            and part.dtype in WIDE
            and m.form.scheme is not None
            and m.form.scheme.type == "int"
        )
    )
    module = patient.pick(modules)
    grid = ScaleGrid(module)
    row, group = patient.rng.randrange(grid.scales.shape[0]), patient.rng.randrange(grid.scales.shape[1])
    if not unit_values(module, list(grid.outputs(row))[:8])[:, grid.inputs(group)].any():
        raise NotApplicable("a group of zeros")
    at = grid.stored(row, group)

    def shrink(array: Array) -> None:
        array.reshape(-1, array.shape[-1])[at] = float(array.reshape(-1, array.shape[-1])[at]) * 2.0**-30

    edit_part(patient, module, "scale", shrink)
    return replace(module.place("scale"), row=at[0], col=at[1])
