"""Plants WGT219."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from degarble.checks.weights.router_bias_collapsed import LEAF, MIN_EXPERTS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("WGT219")
def router_bias_collapsed(patient: Patient) -> Location:
    """Give all experts of one layer the same bias."""
    module = patient.pick(_biases(patient))
    info = module.any_part
    overwrite(patient, info, np.full(info.shape, 6.9, module.reader.read(info).dtype))
    return module.place()


@fault("WGT219")
def router_bias_collapsed_everywhere(patient: Patient) -> Location:
    """Give all experts of every layer the same bias."""
    modules = _biases(patient)
    for module in modules:
        info = module.any_part
        overwrite(patient, info, np.full(info.shape, 6.9, module.reader.read(info).dtype))
    return modules[0].place()


@fault("WGT219")
def router_bias_cast_to_bfloat16(patient: Patient) -> Location:
    """Round the biases of all layers to bf16, which leaves a few distinct values."""
    modules = [m for m in _biases(patient) if m.any_part.shape[0] >= MIN_EXPERTS and m.any_part.dtype == "F32"]
    for module in modules:
        values = module.reader.read(module.any_part)
        rounded = values.astype(ml_dtypes.bfloat16).astype(np.float32)
        if len(np.unique(rounded)) * 4 >= values.size:
            raise NotApplicable("the biases spread too far to collapse in bf16")
        overwrite(patient, module.any_part, rounded)
    if not modules:
        raise NotApplicable(f"fewer than {MIN_EXPERTS} experts, or biases that are not fp32")
    return modules[0].place()


def _biases(patient: Patient) -> list[StoredModule]:
    return patient.modules(
        lambda m: (
            (m.canonical or "").endswith(LEAF)
            and not m.any_part.dtype.startswith("GGUF")
            and len(m.any_part.shape) == 1
        )
    )
