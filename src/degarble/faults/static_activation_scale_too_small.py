"""Plants NUM305."""

from __future__ import annotations

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.input_scales import INPUT_SCALE
from degarble.faults.interface import Patient, fault
from degarble.faults.stored_values import edit_part, is_linear
from degarble.finding import Location


@fault("NUM305")
def static_activation_scale_too_small(patient: Patient) -> Location:
    """Divide the activation scale of one linear by 64."""
    module = patient.pick(patient.modules(lambda one: is_linear(one) and one.part(INPUT_SCALE) is not None))

    def shrink(scale: Array) -> None:
        scale[...] = scale / 64

    edit_part(patient, module, INPUT_SCALE, shrink)
    return module.place()
