"""Plants WGT218."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.layer_series import MIN_LAYERS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("WGT218")
def key_bias_outlier(patient: Patient) -> Location:
    """Give the keys of one layer a bias with one channel of 600."""
    module = patient.pick(_biased(patient))
    return _raise(patient, [module])


@fault("WGT218")
def key_bias_outlier_at_both_ends(patient: Patient) -> Location:
    """The same in the first and the last layer."""
    found = sorted(_biased(patient), key=lambda m: m.layer or 0)
    return _raise(patient, [found[0], found[-1]])


def _biased(patient: Patient) -> list[StoredModule]:
    found = patient.modules(lambda m: m.template.endswith(".k_proj") and "bias" in m.form.roles)
    if len({m.layer for m in found}) < MIN_LAYERS:
        raise NotApplicable(f"fewer than {MIN_LAYERS} layers with a key bias")
    return found


def _raise(patient: Patient, modules: list[StoredModule]) -> Location:
    for module in modules:
        info = module.parts[module.form.roles["bias"]]
        dtype = np.dtype("<f4") if info.dtype == "GGUF:F32" else module.array("bias").dtype
        bias: Array = module.reader.raw(info).copy().view(dtype)
        bias[patient.rng.randrange(bias.size)] = 600
        overwrite(patient, info, bias)
    return modules[0].place("bias")
