"""Plants NUM301 by what the weights make of the first token: no single one of them gives it away."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.errors import EvidenceMissing
from degarble.evidence.half_precision import LARGEST_HALF
from degarble.evidence.half_reach import HalfReach, half_reach
from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

FP16 = Settings(dtype="float16")
NORM_PEAK = LARGEST_HALF / 64
"""Largest output of a norm: half of what the norm by itself is told for."""
MATRIX_RMS = 1.0
"""Largest rms of a matrix: below what WGT229 calls beyond training."""
MARGIN = 0.5
"""What is left of fp16's range for the largest product."""


@fault("NUM301", settings=FP16)
def first_token_beyond_half(patient: Patient) -> Location:
    """Grow norm, gate and up by powers of two, in all layers, none of them conspicuous: their product leaves fp16."""
    largest = _reach(patient).largest("gate x up")
    norms, gates, ups, downs = (_ending(patient, end) for end in
                                ("post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"))  # fmt: skip
    peak = max(float(np.abs(one).max()) * len(one) ** 0.5 for one in norms.values())
    rms = max(float(np.sqrt(np.square(one).mean())) for one in (*gates.values(), *ups.values()))
    if min(peak, rms, largest.estimate) <= 0:
        raise NotApplicable("zeros")
    grown = _floor_power(NORM_PEAK / peak), _floor_power(MATRIX_RMS / rms)
    growth = (grown[0] * grown[1]) ** 2
    if growth < 1 or largest.estimate * growth < LARGEST_HALF / MARGIN:
        raise NotApplicable("the product cannot leave fp16 without a matrix or norm that is out of proportion")
    for members, factor in ((norms, grown[0]), (gates, grown[1]), (ups, grown[1]), (downs, 1 / growth)):
        for module, values in members.items():
            _write(patient, module, values * np.float32(factor))
    return largest.location


def _floor_power(value: float) -> float:
    return float(2.0 ** np.floor(np.log2(value)))


def _ending(patient: Patient, end: str) -> dict[StoredModule, Array]:
    """Modules of all layers, and their values."""
    found = {one: one.array(PAYLOAD).astype(np.float32)
             for one in patient.modules(lambda one: (one.canonical or "").endswith(end))
             if one.payload is not None and one.form.format == "plain" and one.payload.dtype in ("BF16", "F32")}  # fmt: skip
    if not found:
        raise NotApplicable(f"no {end} stored in a type of that range")
    return found


def _reach(patient: Patient) -> HalfReach:
    modules, config = patient.evidence.find("modules"), patient.evidence.find("model_config")
    if modules is None or config is None:
        raise NotApplicable("no model")
    try:
        found: HalfReach = half_reach(FP16, modules, config)
    except EvidenceMissing as reason:
        raise NotApplicable(str(reason)) from None
    return found


def _write(patient: Patient, module: StoredModule, values: Array) -> None:
    assert module.payload is not None
    overwrite(patient, module.payload, values.astype(module.array(PAYLOAD).dtype))
