"""Plants WGT213."""

from __future__ import annotations

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.fused_groups import FusedGroup
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import write_parts
from degarble.finding import Location
from degarble.formats import float8
from degarble.formats.interface import StoredModule


@fault("WGT213")
def fused_scales_disagree(patient: Patient) -> Location:
    """Give one part of a fused group a global scale of its own, with block scales that keep its weights."""
    module = patient.pick(patient.pick(_groups(patient)))
    return _rescale(patient, [module], 1.85)


@fault("WGT213")
def fused_scales_disagree_a_little(patient: Patient) -> Location:
    """The same with a ratio of 1.1, below what makes an error."""
    module = patient.pick(patient.pick(_groups(patient)))
    return _rescale(patient, [module], 1.1)


@fault("WGT213")
def fused_scales_disagree_everywhere(patient: Patient) -> Location:
    """Give the last part of every fused group a global scale of its own."""
    return _rescale(patient, [group[-1] for group in _groups(patient)], 1.85)


def _groups(patient: Patient) -> list[FusedGroup]:
    groups = patient.evidence.find("fused_groups") or ()
    found = [group for group in groups if all("global_scale" in module.form.roles for module in group)]
    if not found:
        raise NotApplicable("no fused group with global scales")
    return found


def _rescale(patient: Patient, modules: list[StoredModule], ratio: float) -> Location:
    """The weights stay what they are, but for the rounding of the block scales."""
    for module in modules:
        info, codes = module.part("scale"), module.array("scale")
        if info is None:
            raise NotApplicable(f"{module.name} has no scale")
        sign = -1 if module.form.format == "modelopt_nvfp4" else 1
        scales: Array = float8.decode(codes.view("u1"), info.dtype) / ratio
        total = module.array("global_scale") * ratio**-sign
        write_parts(
            patient,
            module,
            {info.name: float8.encode(scales, info.dtype), module.parts[module.form.roles["global_scale"]].name: total},
        )
    return modules[0].place("global_scale")
