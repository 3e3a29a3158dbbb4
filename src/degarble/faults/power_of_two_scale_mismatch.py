"""Plants WGT214."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.checks.weights.power_of_two_scale_mismatch import MIN_SCALES
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats import e2m1, float8, fp8_block
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("WGT214")
def power_of_two_scale_mismatch(patient: Patient) -> Location:
    """Quantise one module with exact scales and store them rounded up to powers of two."""
    module = patient.pick(patient.modules(_can_round))
    _round(patient, module)
    return module.place("scale")


@fault("WGT214")
def power_of_two_scale_mismatch_everywhere(patient: Patient) -> Location:
    """The same for every module."""
    modules = patient.modules(_can_round)
    for module in modules:
        _round(patient, module)
    return modules[0].place("scale")


def _can_round(module: StoredModule) -> bool:
    scheme, info = module.form.scheme, module.part("scale")
    if scheme is None or info is None or scheme.type != "float" or len(module.form.shape or ()) != 2:
        return False
    count = int(np.prod(info.shape, dtype=object))
    is_mx = scheme.group_size == 32 and "global_scale" not in module.form.roles
    return count >= MIN_SCALES and (scheme.block_shape is not None or is_mx)


def _round(patient: Patient, module: StoredModule) -> None:
    weight, scheme = module.dequantize(), module.form.scheme
    payload = module.part(PAYLOAD)
    if scheme is None or payload is None:
        raise NotApplicable("not quantised")
    is_fp4 = scheme.num_bits == 4
    largest = e2m1.MAX if is_fp4 else float8.largest(payload.dtype)
    block = scheme.block_shape or (1, scheme.group_size or 32)
    amax = _block_amax(np.abs(weight), block)
    exact = np.where(amax > 0, amax / largest, 1).astype(np.float32)
    scaled = weight / fp8_block.expand(exact, block, weight.shape)
    codes = e2m1.encode(scaled) if is_fp4 else float8.encode(scaled, payload.dtype)
    replace_values(patient, module, codes=codes, scales=np.exp2(np.ceil(np.log2(exact))).astype(np.float32))


def _block_amax(sizes: Array, block: tuple[int, int]) -> Array:
    rows, columns = fp8_block.grid_of(sizes.shape, block)
    padded = np.zeros((rows * block[0], columns * block[1]), np.float32)
    padded[: sizes.shape[0], : sizes.shape[1]] = sizes
    return np.asarray(padded.reshape(rows, block[0], columns, block[1]).max(axis=(1, 3)))
