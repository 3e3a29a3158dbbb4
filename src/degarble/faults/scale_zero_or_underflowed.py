"""Plants WGT202."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.unit_values import ScaleGrid, unit_values
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import edit_part, has_codes, replace_values
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

CAN_BE_ZERO = ("F16", "BF16", "F32", "F64", "F8_E4M3", "F8_E5M2")


@fault("WGT202")
def scale_zero_or_underflowed(patient: Patient) -> Location:
    """Set one scale of one module to zero."""
    module = _pick(patient)
    grid = ScaleGrid(module)
    row, group = _live_group(patient, module, grid)
    place = grid.stored(row, group)
    edit_part(patient, module, "scale", lambda array: _set(array, place, 0))
    return replace(module.place("scale"), row=place[0], col=place[1])


@fault("WGT202")
def scale_negative(patient: Patient) -> Location:
    """Turn the sign of one scale."""
    module = _pick(patient)
    grid = ScaleGrid(module)
    row, group = _live_group(patient, module, grid)
    place = grid.stored(row, group)
    edit_part(patient, module, "scale", lambda array: _set(array, place, -float(_get(array, place))))
    return replace(module.place("scale"), row=place[0], col=place[1])


@fault("WGT202")
def scales_zero_in_one_module(patient: Patient) -> Location:
    """Set all scales of one module to zero."""
    module = _pick(patient)
    edit_part(patient, module, "scale", lambda array: array.fill(0))
    return module.place("scale")


@fault("WGT202")
def scales_zero_in_one_expert(patient: Patient) -> Location:
    """Set all scales of one expert's projection to zero."""
    module = _pick(patient, lambda m: m.expert is not None)
    edit_part(patient, module, "scale", lambda array: array.fill(0))
    return module.place("scale")


@fault("WGT202")
def scales_zero_in_one_layer(patient: Patient) -> Location:
    """Set all scales of one layer to zero."""
    module = _pick(patient)
    for peer in patient.modules(lambda m: m.layer == module.layer and _has_scale(m)):
        edit_part(patient, peer, "scale", lambda array: array.fill(0))
    return module.place("scale")


@fault("WGT202")
def scales_underflowed_in_half(patient: Patient) -> Location:
    """Multiply one stored row of fp16 scales by 1e-8, as a clamp on a copy lets happen: they become zero."""
    module = _pick(patient, lambda m: (part := m.part("scale")) is not None and part.dtype == "F16")
    row = patient.rng.randrange(module.array("scale").shape[0])
    edit_part(patient, module, "scale", lambda array: _shrink(array, row))
    return module.place("scale")


@fault("WGT202")
def global_scale_zero(patient: Patient) -> Location:
    """Set one global scale to zero."""
    return _single(patient, "global_scale")


@fault("WGT202")
def input_scale_zero(patient: Patient) -> Location:
    """Set one activation scale to zero."""
    return _single(patient, "input_scale")


@fault("WGT202")
def block_scale_zero(patient: Patient) -> Location:
    """Set the scale inside one GGUF block to zero."""
    module = patient.pick(patient.modules(lambda m: has_codes(m) and m.form.format == "gguf" and m.kind == "linear"))
    try:
        scales = module.scales().copy()
    except ValueError as reason:
        raise NotApplicable(str(reason)) from None
    row, block = patient.rng.randrange(scales.shape[0]), patient.rng.randrange(scales.shape[-1])
    if "e8m0" in module.payload.dtype.lower() or module.payload.dtype == "GGUF:MXFP4":  # type: ignore[union-attr]
        raise NotApplicable("exponents have no zero")
    scales[row, block] = 0
    replace_values(patient, module, scales=scales)
    return replace(module.place(PAYLOAD), row=row)


def _single(patient: Patient, role: str) -> Location:
    module = patient.pick(patient.modules(lambda m: has_codes(m) and role in m.form.roles))
    edit_part(patient, module, role, lambda array: array.fill(0))
    return module.place(role)


def _has_scale(module: StoredModule) -> bool:
    part = module.part("scale")
    return has_codes(module) and part is not None and part.dtype in CAN_BE_ZERO and "offset" not in module.form.roles


def _pick(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> StoredModule:
    return patient.pick(patient.modules(lambda m: _has_scale(m) and suitable(m)))


def _live_group(patient: Patient, module: StoredModule, grid: ScaleGrid) -> tuple[int, int]:
    """A group that holds something."""
    for _ in range(32):
        row, group = patient.rng.randrange(grid.scales.shape[0]), patient.rng.randrange(grid.scales.shape[1])
        outputs = list(grid.outputs(row))[:8]
        if unit_values(module, outputs)[:, grid.inputs(group)].any():
            return row, group
    raise NotApplicable(f"{module.name} holds hardly anything")


def _flat(array: Array) -> Array:
    return array.reshape(-1, array.shape[-1] if array.ndim else 1)


def _get(array: Array, place: tuple[int, int]) -> float:
    return float(_flat(array)[place])


def _set(array: Array, place: tuple[int, int], value: float) -> None:
    _flat(array)[place] = value


def _shrink(array: Array, row: int) -> None:
    array[row] = (array[row].astype(np.float64) * 1e-8).astype(array.dtype)
