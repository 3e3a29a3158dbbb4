"""Plants NUM309."""

from __future__ import annotations

from degarble.checkpoint.tensor_data import Array
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, overwrite
from degarble.finding import Location

READ_SUMS = ("Q4_1", "Q5_1", "Q2_K", "Q4_K", "Q5_K")
FACTOR = 2.0**13


@fault("NUM309")
def block_sum_overflow(patient: Patient) -> Location:
    """Multiply the norm before a linear that reads block sums, so that 32 of its outputs add up beyond fp16."""
    found = patient.modules(
        lambda one: is_linear(one) and one.payload is not None and one.payload.dtype.endswith(READ_SUMS)
    )
    linear = patient.pick(one for one in found if (one.canonical or "").endswith(("q_proj", "k_proj", "v_proj")))
    name = f"model.layers.{linear.layer}.input_layernorm"
    norm = next((one for one in patient.modules() if one.canonical == name), None)
    if norm is None or norm.payload is None or norm.payload.dtype != "GGUF:F32":
        raise NotApplicable("no norm in fp32 before it")
    gain: Array = norm.reader.raw(norm.payload).view("<f4") * FACTOR
    overwrite(patient, norm.payload, gain.astype("<f4"))
    return linear.place()
