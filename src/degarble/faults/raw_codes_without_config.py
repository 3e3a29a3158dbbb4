"""Plants QNT103."""

from __future__ import annotations

from typing import Any

from degarble.checks.quantization.raw_codes_without_config import OWN_CONVENTIONS
from degarble.evidence.declaration import SIDECARS, quantization_objects
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import StoredModule

NARROW = "re:.*self_attn.*"


@fault("QNT103")
def raw_codes_without_config(patient: Patient) -> Location:
    """Remove the quantisation config from every file that has one."""
    configs = _configs(patient)
    for file, key in configs:
        if file == "config.json":
            _remove(patient, key)
        else:
            patient.workspace.delete(file)
    module = _coded(patient)[0]
    return Location(file="config.json", key="quantization_config", module=module.name, tensor=module.any_part.name)


@fault("QNT103")
def config_in_sidecar_only(patient: Patient) -> Location:
    """Move the quantisation config out of config.json into a file of its own."""
    configs = dict(_configs(patient))
    if "config.json" not in configs or "hf_quant_config.json" in configs:
        raise NotApplicable("no config.json that declares it, or a sidecar that its readers know")
    method = patient.evidence.get("declaration").method
    sidecar = next((file for file, owner in SIDECARS if owner == method and file not in OWN_CONVENTIONS), None)
    if sidecar is None or set(configs) - {"config.json", sidecar}:
        raise NotApplicable(f"{method} knows no file of its own, or another file speaks as well")
    raw = _remove(patient, configs["config.json"])
    if sidecar not in configs:
        patient.workspace.json(sidecar).update(raw)
    _coded(patient)
    return Location(file=sidecar)


@fault("QNT103")
def config_names_other_modules(patient: Patient) -> Location:
    """Narrow the config's targets to attention, so that no rule speaks of the other quantised modules."""
    key = dict(_configs(patient)).get("config.json", "")
    config = _holder(patient, key).get(key.rpartition(".")[2])
    groups = config.get("config_groups") if isinstance(config, dict) else None
    method = config.get("quant_method") if isinstance(config, dict) else None
    if not isinstance(groups, dict) or method != "compressed-tensors":
        raise NotApplicable("the config has no groups with targets")
    module = patient.pick(m for m in _coded(patient) if ".self_attn." not in m.name)
    for group in groups.values():
        group["targets"] = [NARROW]
    return module.place()


def _coded(patient: Patient) -> list[StoredModule]:
    return patient.modules(
        lambda m: m.form.is_quantized and m.payload is not None and not m.any_part.dtype.startswith("GGUF")
    )


def _configs(patient: Patient) -> list[tuple[str, str]]:
    """(file, dotted key) of every quantisation config."""
    objects = quantization_objects(patient.evidence.get("json_files"))
    if not objects or patient.evidence.find("modules") is None:
        raise NotApplicable("no quantisation config")
    _coded(patient)
    return [(file, key) for file, key, *_ in objects]


def _holder(patient: Patient, key: str) -> dict[str, Any]:
    """The object in config.json that holds the last part of a dotted key."""
    holder: dict[str, Any] = patient.workspace.json("config.json")
    for outer in key.split(".")[:-1]:
        holder = holder[outer]
    return holder


def _remove(patient: Patient, key: str) -> dict[str, Any]:
    removed: dict[str, Any] = _holder(patient, key).pop(key.rpartition(".")[2])
    return removed
