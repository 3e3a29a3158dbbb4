"""Plants NUM308."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import MalformedFile
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.repack.truncations import shift_in_field, shift_then_clip

Remap = Callable[[Array, int], Array]
"""(signed codes, bits) -> signed codes."""
MIN_CODES = 1024


@fault("NUM308")
def repack_truncates(patient: Patient) -> Location:
    """Repack one module with clip(w << 4): only the signs of its codes are left."""
    module = patient.pick(_suitable(patient))
    return _rewrite(patient, module, _classic)


@fault("NUM308")
def every_module_truncated(patient: Patient) -> Location:
    """Repack all modules with clip(w << 4)."""
    return patient.pick([_rewrite(patient, module, _classic) for module in _suitable(patient)])


@fault("NUM308")
def expert_truncated(patient: Patient) -> Location:
    """Repack one expert's module with clip(w << 4)."""
    module = patient.pick(module for module in _suitable(patient) if module.expert is not None)
    return _rewrite(patient, module, _classic)


@fault("NUM308")
def truncated_and_stored_as_fields(patient: Patient) -> Location:
    """Repack one module with clip(w << 4), and store the result as two's complement where excess codes belong."""
    module = patient.pick(module for module in _suitable(patient) if not _is_signed(module))

    def as_fields(signed: Array, bits: int) -> Array:
        fields = _classic(signed, bits) & ((1 << bits) - 1)
        return np.asarray(fields - (1 << (bits - 1)))  # _rewrite adds the excess again

    return _rewrite(patient, module, as_fields)


@fault("NUM308")
def low_bit_lost(patient: Patient) -> Location:
    """Shift the codes of one module by one bit inside their fields."""
    module = patient.pick(_suitable(patient))
    return _rewrite(patient, module, lambda signed, bits: shift_in_field(signed, bits, 1))


@fault("NUM308")
def two_bits_clipped(patient: Patient) -> Location:
    """Shift the codes of one module by two bits, and clip."""
    module = patient.pick(_suitable(patient))
    return _rewrite(patient, module, lambda signed, bits: shift_then_clip(signed, bits, 2))


def _classic(signed: Array, bits: int) -> Array:
    return shift_then_clip(signed, bits, 4)


def _is_signed(module: StoredModule) -> bool:
    return bool(np.issubdtype(module.codes().dtype, np.signedinteger))


def _suitable(patient: Patient) -> list[StoredModule]:
    def fits(module: StoredModule) -> bool:
        scheme = module.form.scheme
        if scheme is None or scheme.type != "int" or scheme.num_bits not in (3, 4, 8) or module.form.contradictions:
            return False
        try:
            codes = module.codes()
            module.replace(codes=codes)
        except (NotImplementedError, ValueError, KeyError, MalformedFile):
            return False
        return codes.size >= MIN_CODES

    return patient.modules(fits)


def _rewrite(patient: Patient, module: StoredModule, remap: Remap) -> Location:
    """New codes, within what the format can store."""
    scheme = module.form.scheme
    if scheme is None or scheme.num_bits is None:
        raise NotApplicable(f"{module.name} has no integer codes")
    codes, excess = module.codes(), 0 if _is_signed(module) else 1 << (scheme.num_bits - 1)
    signed = remap(codes.astype(np.int64) - excess, scheme.num_bits)
    replace_values(patient, module, codes=(signed + excess).astype(codes.dtype))
    return module.place()
