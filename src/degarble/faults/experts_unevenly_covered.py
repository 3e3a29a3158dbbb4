"""Plants QNT111."""

from __future__ import annotations

import numpy as np

from degarble.evidence.input_scales import INPUT_SCALE
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.scale_missing import mapped_modules
from degarble.faults.skip_list_edit import add_entries, skips_of
from degarble.faults.stored_plain_but_declared_quantized import store_plain
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT111")
def experts_unevenly_covered(patient: Patient) -> Location:
    """Drop an activation scale of one expert, which calibration did not reach."""
    module = patient.pick(_experts(patient, INPUT_SCALE))
    return _drop(patient, module, INPUT_SCALE)


@fault("QNT111")
def most_experts_uncalibrated(patient: Patient) -> Location:
    """Drop the activation scales of all experts of a layer but one."""
    keeper = patient.pick(_experts(patient, INPUT_SCALE))
    others = [m for m in _experts(patient, INPUT_SCALE) if _is_peer(m, keeper) and m is not keeper]
    return patient.pick([_drop(patient, module, INPUT_SCALE) for module in others])


@fault("QNT111")
def smoothing_scale_on_one_expert_only(patient: Patient) -> Location:
    """Give one expert a smoothing scale that its neighbours do not have."""
    module = patient.pick(
        m for m in _experts(patient) if "pre_quant_scale" not in m.form.roles and m.form.shape is not None
    )
    suffix = next((s for s, role in module.format.roles.items() if role == "pre_quant_scale"), None)
    if suffix is None:
        raise NotApplicable(f"{module.format.name} stores no smoothing scale")
    shape = module.form.shape or ()
    patient.workspace.add(module.any_part.file, f"{module.name}.{suffix}", np.ones(shape[-1], np.float32))
    return Location(layer=module.layer)


@fault("QNT111")
def one_expert_kept_plain(patient: Patient) -> Location:
    """Put one projection of one expert on the skip list, and store it plain."""
    skips = skips_of(patient)
    if skips.declaration.method != "compressed-tensors":
        raise NotApplicable("the readers of other methods take one expert for the whole stack")
    module = patient.pick(_experts(patient))
    place = store_plain(patient, module)
    add_entries(patient, skips, module.name)
    return place


def _experts(patient: Patient, role: str | None = None) -> list[StoredModule]:
    """Quantised experts with neighbours, and with a role where one is asked for."""
    experts = mapped_modules(patient, lambda m: m.expert is not None and m.kind == "linear" and m.form.is_quantized)
    found = [m for m in experts if role is None or role in m.form.roles]
    return [m for m in found if any(_is_peer(m, other) and other is not m for other in found)]


def _is_peer(one: StoredModule, other: StoredModule) -> bool:
    return one.template == other.template and one.layer == other.layer


def _drop(patient: Patient, module: StoredModule, role: str) -> Location:
    patient.workspace.drop(module.parts[module.form.roles[role]].name)
    return module.place()
