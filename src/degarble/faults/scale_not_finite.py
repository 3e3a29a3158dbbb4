"""Plants WGT201."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import edit_part, float_companions, has_codes
from degarble.finding import Location
from degarble.formats.e8m0 import DTYPES, NAN
from degarble.formats.interface import StoredModule

Choice = tuple[StoredModule, str]


@fault("WGT201")
def scale_not_finite(patient: Patient) -> Location:
    """Make one scale of one module NaN."""
    return _one_value(patient, _choices(patient), np.nan)


@fault("WGT201")
def scale_not_finite_in_one_expert(patient: Patient) -> Location:
    """Make one scale of one expert NaN."""
    return _one_value(patient, _choices(patient, lambda m: m.expert is not None), np.nan)


@fault("WGT201")
def scale_infinite(patient: Patient) -> Location:
    """Make one scale infinite, as a cast from fp32 to fp16 does."""
    wide = [(m, role) for m, role in _choices(patient) if _dtype(m, role) in ("F16", "BF16", "F32")]
    return _one_value(patient, wide, np.inf)


@fault("WGT201")
def scale_row_not_finite(patient: Patient) -> Location:
    """Make a whole row of block scales NaN."""
    module, role = patient.pick((m, r) for m, r in _choices(patient) if m.array(r).ndim > 1 < m.array(r).shape[-1])
    row = patient.rng.randrange(module.array(role).reshape(-1, module.array(role).shape[-1]).shape[0])
    edit_part(patient, module, role, lambda array: _set(array.reshape(-1, array.shape[-1])[row], np.nan))
    return replace(module.place(role), row=row, col=0)


@fault("WGT201")
def scales_not_finite_everywhere(patient: Patient) -> Location:
    """Make every scale of one projection NaN, in all layers."""
    module, role = patient.pick(_choices(patient))
    for peer in patient.modules(lambda m: m.template == module.template and role in m.form.roles):
        edit_part(patient, peer, role, lambda array: _set(array, np.nan))
    return module.place(role)


def _choices(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> list[Choice]:
    modules = patient.modules(lambda m: has_codes(m) and suitable(m))
    return [(m, role) for m in modules for role in (*float_companions(m), *_exponents(m))]


def _exponents(module: StoredModule) -> list[str]:
    """E8M0 scales under the dtype of bytes."""
    scheme, info = module.form.scheme, module.part("scale")
    is_bytes = info is not None and info.dtype in DTYPES and info.dtype == "U8"
    return ["scale"] if is_bytes and scheme is not None and scheme.type == "float" else []


def _dtype(module: StoredModule, role: str) -> str:
    info = module.part(role)
    return info.dtype if info is not None else ""


def _one_value(patient: Patient, choices: list[Choice], value: float) -> Location:
    module, role = patient.pick(choices)
    array = module.array(role)
    columns = array.shape[-1] if array.ndim else 1
    if not array.size:
        raise NotApplicable("an empty scale")
    row, col = divmod(patient.rng.randrange(array.size), columns)
    edit_part(patient, module, role, lambda new: _set(new.reshape(-1)[row * columns + col :][:1], value))
    return replace(module.place(role), row=row, col=col)


def _set(array: Array, value: float) -> None:
    """`array` is a view; bytes of exponents have a NaN of their own."""
    array[...] = NAN if array.dtype == np.uint8 else value
