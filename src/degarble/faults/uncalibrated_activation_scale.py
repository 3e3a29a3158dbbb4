"""Plants QNT119."""

from __future__ import annotations

from typing import Any

from degarble.evidence.input_scales import INPUT_SCALE
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.scale_missing import needed_roles
from degarble.finding import Location


@fault("QNT119")
def uncalibrated_activation_scale(patient: Patient) -> Location:
    """Drop every stored activation scale; the scheme stays static."""
    modules = patient.modules(lambda m: m.form.is_quantized and INPUT_SCALE in needed_roles(m))
    for module in modules:
        patient.workspace.drop(module.parts[module.form.roles[INPUT_SCALE]].name)
    return Location(file=patient.evidence.get("declaration").file, module=patient.pick(modules).name)


@fault("QNT119")
def activations_declared_static(patient: Patient) -> Location:
    """Declare dynamic activations static: no calibrated scale is stored."""
    declaration = patient.evidence.find("declaration")
    if declaration is None or declaration.file != "config.json":
        raise NotApplicable("no config.json that declares anything")
    if declaration.default is None or declaration.default.activations != "dynamic":
        raise NotApplicable("activations are not dynamic")
    module = patient.pick(patient.modules(lambda m: m.form.is_quantized and INPUT_SCALE in m.format.roles.values()))
    config: Any = patient.workspace.json("config.json")
    for key in declaration.key.split("."):
        config = config[key]
    if "activation_scheme" in config:
        config["activation_scheme"] = "static"
    elif not _make_static(config.get("config_groups")):
        raise NotApplicable(f"{declaration.method} has no key for it")
    return Location(file="config.json", module=module.name)


def _make_static(groups: Any) -> bool:
    changed = False
    for group in groups.values() if isinstance(groups, dict) else ():
        inputs = group.get("input_activations") if isinstance(group, dict) else None
        if isinstance(inputs, dict) and inputs.get("dynamic") is True:
            inputs |= {"dynamic": False, "strategy": "tensor", "group_size": None}
            changed = True
    return changed
