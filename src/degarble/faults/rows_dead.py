"""Plants WGT205."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, overwrite, replace_values
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("WGT205")
def rows_dead(patient: Patient) -> Location:
    """Set an eighth of the rows of one linear to zero."""
    return _plant(patient, patient.pick(patient.modules(_has_rows)), 8)


@fault("WGT205")
def rows_dead_in_one_expert(patient: Patient) -> Location:
    """Set half of the rows of one expert's linear to zero."""
    return _plant(patient, patient.pick(patient.modules(lambda m: _has_rows(m) and m.expert is not None)), 2)


@fault("WGT205")
def key_rows_dead(patient: Patient) -> Location:
    """Set half of the rows of one k_proj to zero, as a published model had them."""
    keys = patient.modules(lambda m: _has_rows(m) and (m.canonical or "").endswith("k_proj"))
    return _plant(patient, patient.pick(keys), 2)


def _has_rows(module: StoredModule) -> bool:
    return is_linear(module) and len(module.form.shape or ()) == 2


def _plant(patient: Patient, module: StoredModule, share: int) -> Location:
    outputs = (module.form.shape or (0,))[0]
    count = max(8, outputs // share)
    if outputs < 2 * count:
        raise NotApplicable("too few rows")
    first = patient.rng.randrange(0, outputs - count)
    kill_rows(patient, module, range(first, first + count))
    return replace(module.place(), row=first)


def kill_rows(patient: Patient, module: StoredModule, rows: Sequence[int]) -> None:
    """Make rows decode to zero by their codes, or by the block scales where GGUF hides the codes."""
    if not module.form.is_quantized:
        info = module.any_part
        raw = module.reader.raw(info).copy().reshape(info.shape[0], -1)
        raw[list(rows)] = 0
        overwrite(patient, info, raw)
        return
    try:
        codes = module.codes().copy()
    except ValueError:
        _kill_blocks(patient, module, rows)
        return
    codes[list(rows)] = _zero_codes(module, rows)
    replace_values(patient, module, codes=codes)


def _kill_blocks(patient: Patient, module: StoredModule, rows: Sequence[int]) -> None:
    """Zero bytes are zero weights in every ggml type with a scale and no fixed offset."""
    info = module.any_part
    raw = module.reader.raw(info).copy().reshape(info.shape[0], -1)
    raw[list(rows)] = 0
    overwrite(patient, info, raw)


def _zero_codes(module: StoredModule, rows: Sequence[int]) -> Array:
    """The code of zero for every input of the rows."""
    zeros, index = module.zeros(), module.group_index()
    if zeros is not None and index is not None:
        return np.asarray(zeros[list(rows)][:, index])
    if "codebook" in module.form.roles:
        return np.asarray(np.argmin(np.abs(module.array("codebook").astype(np.float32))))
    if PAYLOAD not in module.form.roles:
        raise NotApplicable(f"{module.name} has no codes")
    return np.zeros(1, np.int64)
