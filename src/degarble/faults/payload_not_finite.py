"""Plants WGT203."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import edit_part, overwrite, replace_values
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

FLOATS = ("F16", "BF16", "F32", "F64", "F8_", "GGUF:F32", "GGUF:F16", "GGUF:BF16")
KINDS = ("linear", "router", "head", "embedding", "norm")


@fault("WGT203")
def payload_not_finite(patient: Patient) -> Location:
    """Make one weight NaN."""
    return _one(patient, _floats(patient), np.nan)


@fault("WGT203")
def payload_not_finite_in_one_norm(patient: Patient) -> Location:
    """Make one norm weight NaN."""
    return _one(patient, _floats(patient, lambda m: m.kind == "norm"), np.nan)


@fault("WGT203")
def payload_infinite(patient: Patient) -> Location:
    """Make one weight infinite, as a cast of a large bf16 value to fp16 does."""
    wide = [m for m in _floats(patient) if "F8" not in m.any_part.dtype]
    return _one(patient, wide, np.inf)


@fault("WGT203")
def payload_block_not_finite(patient: Patient) -> Location:
    """Store the tile of a weight as NaN, as 0 / 0 gives it."""
    module = patient.pick(
        m for m in _floats(patient) if not m.any_part.dtype.startswith("GGUF") and len(m.any_part.shape) == 2
    )
    edit_part(patient, module, PAYLOAD, lambda array: array[:16, :16].fill(np.nan))
    return replace(module.place(), row=0, col=0)


@fault("WGT203")
def block_scale_not_finite(patient: Patient) -> Location:
    """Make the scale inside one GGUF block NaN."""
    return _blocks(patient, 1)


@fault("WGT203")
def block_scales_not_finite_in_a_row(patient: Patient) -> Location:
    """Make the scales of a whole row of GGUF blocks NaN."""
    return _blocks(patient, None)


def _floats(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> list[StoredModule]:
    return patient.modules(
        lambda m: m.kind in KINDS and m.payload is not None and m.payload.dtype.startswith(FLOATS) and suitable(m)
    )


def _one(patient: Patient, modules: list[StoredModule], value: float) -> Location:
    module = patient.pick(modules)
    info = module.any_part
    plain: dict[str, np.dtype[np.generic]] = {"GGUF:F32": np.dtype("<f4"), "GGUF:F16": np.dtype("<f2")}
    if info.dtype == "GGUF:BF16":
        array = module.reader.raw(info).copy().view("<u2")
        bits: float = 0x7F80 if np.isinf(value) else 0x7FC0
    else:
        dtype: np.dtype[np.generic] = plain[info.dtype] if info.dtype in plain else module.array(PAYLOAD).dtype
        array = module.reader.raw(info).copy().view(dtype)
        bits = value
    at = patient.rng.randrange(array.size)
    array[at] = bits
    overwrite(patient, info, array)
    row, col = divmod(at, info.shape[-1])
    return replace(module.place(), row=row, col=col)


def _blocks(patient: Patient, count: int | None) -> Location:
    module = patient.pick(patient.modules(lambda m: m.form.format == "gguf"))
    try:
        scales = module.scales().copy()
    except ValueError as reason:
        raise NotApplicable(str(reason)) from None
    rows = scales.reshape(-1, scales.shape[-1])
    row = patient.rng.randrange(len(rows))
    first = patient.rng.randrange(rows.shape[1]) if count else 0
    rows[row, first : first + count if count else None] = np.nan
    replace_values(patient, module, scales=scales)
    return replace(module.place(), row=row)
