"""Plants WGT215."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats import e8m0, fp8_block
from degarble.formats.interface import StoredModule

WIDE = ("F32", "BF16", "F16")


@fault("WGT215")
def exponent_bytes_as_values(patient: Patient) -> Location:
    """Store the exponent bytes of all block scales by value: 120.0 instead of 2 ** -7."""
    modules = patient.modules(_has_wide_scales)
    for module in modules:
        _store_exponents(patient, module)
    return modules[0].place("scale")


@fault("WGT215")
def exponent_bytes_as_values_in_one_module(patient: Patient) -> Location:
    """The same for one module."""
    module = patient.pick(patient.modules(_has_wide_scales))
    _store_exponents(patient, module)
    return module.place("scale")


@fault("WGT215")
def exponent_bytes_undeclared(patient: Patient) -> Location:
    """Store block scales as exponent bytes, and say so nowhere."""
    modules = patient.modules(lambda m: m.form.format == "fp8_block" and _has_wide_scales(m))
    for module in modules:
        info, scheme = module.parts[module.form.roles["scale"]], module.form.scheme
        if scheme is None or scheme.block_shape is None or module.payload is None:
            raise NotApplicable("no blocks")
        codes, scales = fp8_block.quantize(
            module.dequantize(), scheme.block_shape, dtype=module.payload.dtype, power_of_two=True
        )
        overwrite(patient, module.payload, codes)
        patient.workspace.shard(info.file).set(info.name, "U8", info.shape, e8m0.encode(scales).tobytes())
    return modules[0].place("scale")


def _has_wide_scales(module: StoredModule) -> bool:
    info = module.part("scale")
    scheme = module.form.scheme
    is_float = scheme is not None and scheme.type == "float" and scheme.num_bits == 8
    return is_float and info is not None and info.dtype in WIDE


def _exponents(module: StoredModule) -> Array:
    scales = np.maximum(module.array("scale").astype(np.float32), np.float32(1e-30))
    return e8m0.encode(np.exp2(np.ceil(np.log2(scales))))


def _store_exponents(patient: Patient, module: StoredModule) -> None:
    info = module.parts[module.form.roles["scale"]]
    overwrite(patient, info, _exponents(module).astype(module.array("scale").dtype))
