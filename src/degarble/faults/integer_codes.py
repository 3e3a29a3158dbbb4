"""Choosing modules of integer codes and changing their codes or zero points, whatever the format."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient
from degarble.faults.stored_values import replace_values
from degarble.formats.agreement import bits_of
from degarble.formats.interface import StoredModule

MIN_CODES = 4096
"""Smaller matrices have too few groups for any statistic."""

MAX_BITS = 4


def integer_modules(patient: Patient, *, max_bits: int = MAX_BITS, with_zeros: bool = False) -> list[StoredModule]:
    """Linears of the decoder with integer codes of few bits; `with_zeros`: with zero points that differ."""
    found = patient.modules(lambda module: _is_suitable(module, max_bits))
    if with_zeros:
        found = [module for module in found if _has_zeros(module)]
    if not found:
        raise NotApplicable("no integer codes that could be changed")
    return found


def _is_suitable(module: StoredModule, max_bits: int) -> bool:
    scheme, shape = module.form.scheme, module.form.shape
    if module.kind != "linear" or scheme is None or scheme.type != "int" or (scheme.num_bits or 99) > max_bits:
        return False
    if shape is None or len(shape) != 2 or shape[0] * shape[1] < MIN_CODES:
        return False
    return module.form.format != "gguf" or scheme.format in ("Q4_0", "Q8_0")


def _has_zeros(module: StoredModule) -> bool:
    if module.part("zero_point") is None:
        return False
    zeros = module.zeros()
    return zeros is not None and float(zeros.std()) > 0.5


def same_layer(modules: Iterable[StoredModule], module: StoredModule) -> list[StoredModule]:
    """Those of the layer, and of the expert, in which `module` is."""
    return [one for one in modules if (one.layer, one.expert) == (module.layer, module.expert)]


def change_codes(patient: Patient, modules: Iterable[StoredModule], change: Callable[[Array], Array]) -> None:
    """New codes for each module; `change` sees them counted from 0."""
    for module in modules:
        codes = module.codes()
        offset = 1 << (bits_of(module) - 1) if codes.dtype == np.int8 else 0
        changed = change(codes.astype(np.int32) + offset) - offset
        replace_values(patient, module, codes=changed.astype(codes.dtype))


def top_code(module: StoredModule) -> int:
    """The highest code, counted from 0."""
    return (1 << bits_of(module)) - 1


def shift_zero_points(patient: Patient, module: StoredModule, step: int) -> None:
    """Zero points one higher or lower, within their range; in symmetric schemes that store none, the codes instead."""
    top = top_code(module)
    if module.part("zero_point") is None:
        change_codes(patient, [module], lambda codes: np.clip(codes - step, 0, top))
        return
    zeros = module.zeros()
    if zeros is None:
        raise NotApplicable(f"{module.name} gives no zero points")
    offset = 1 << (bits_of(module) - 1) if module.codes().dtype == np.int8 else 0
    replace_values(patient, module, zeros=np.clip(zeros + offset + step, 0, top) - offset)
