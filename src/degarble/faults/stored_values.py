"""Writing changed values into the tensors of a module, whatever the container: header and place in the file stay."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from degarble.checkpoint.interface import TensorInfo
from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient
from degarble.formats.interface import PAYLOAD, StoredModule

JUDGED = ("linear", "router", "head", "embedding")


def overwrite(patient: Patient, info: TensorInfo, array: Array) -> None:
    """New bytes for one tensor of the same dtype and shape."""
    data = np.ascontiguousarray(array).tobytes()
    if len(data) != info.nbytes:
        raise NotApplicable(f"{info.name}: {len(data)} bytes do not fit into {info.nbytes}")
    patient.workspace.shard(info.file).set(info.name, info.dtype, info.shape, data)


def replace_values(patient: Patient, module: StoredModule, **parts: Array) -> None:
    """`StoredModule.replace`, written. Raises NotApplicable for what the format cannot store."""
    try:
        arrays = module.replace(**parts)
    except (ValueError, KeyError, NotImplementedError) as reason:
        raise NotApplicable(str(reason)) from None
    write_parts(patient, module, arrays)


def write_parts(patient: Patient, module: StoredModule, arrays: Mapping[str, Array]) -> None:
    """Arrays by full tensor name."""
    by_name = {info.name: info for info in module.parts.values()}
    for name, array in arrays.items():
        overwrite(patient, by_name[name], array)


def edit_part(patient: Patient, module: StoredModule, role: str, change: Callable[[Array], None]) -> None:
    """Change the stored array of one part in place."""
    info = module.part(role)
    if info is None:
        raise NotApplicable(f"{module.name} has no {role}")
    array = module.array(role).copy()
    change(array)
    overwrite(patient, info, array)


def has_codes(module: StoredModule) -> bool:
    """A quantised matrix of the text model."""
    return module.form.is_quantized and module.kind in JUDGED and module.payload is not None


def is_linear(module: StoredModule) -> bool:
    """A linear of a decoder layer, quantised or not."""
    return module.kind == "linear" and module.layer is not None and module.payload is not None


def float_companions(module: StoredModule) -> list[str]:
    """Roles of scales and the like that are stored as floating-point numbers."""
    floats = ("F16", "BF16", "F32", "F64", "F8_")
    return [
        role
        for role in module.form.roles
        if role not in (PAYLOAD, "bias") and (part := module.part(role)) is not None and part.dtype.startswith(floats)
    ]
