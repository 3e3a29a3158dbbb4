"""What faults around skip lists have in common: writing an entry, and storing a module plain."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import ml_dtypes

from degarble.architectures.interface import Architecture
from degarble.evidence.skips import Skips
from degarble.faults.interface import NotApplicable, Patient
from degarble.finding import Location
from degarble.formats.detect import formats
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.methods.interface import Declaration


def declaration_of(patient: Patient) -> Declaration:
    """The config of the healthy checkpoint. Raises NotApplicable if there is none."""
    found: Declaration | None = patient.evidence.find("declaration")
    if found is None:
        raise NotApplicable("no quantisation config")
    return found


def skips_of(patient: Patient) -> Skips:
    """The lists of the healthy checkpoint. Raises NotApplicable where no engine is known to read one."""
    found: Skips | None = patient.evidence.find("skips")
    if found is None or not found.views or found.declaration.default is None:
        raise NotApplicable("no engine is known to read a skip list here")
    return found


def config_object(patient: Patient, declaration: Declaration) -> dict[str, Any]:
    """The quantisation config, to be changed in place."""
    value: Any = patient.workspace.json(declaration.file)
    for name in declaration.key.split(".") if declaration.key else ():
        value = value[name]
    if not isinstance(value, dict):
        raise NotApplicable("the quantisation config is no object")
    return value


def list_key(skips: Skips) -> str:
    """The name of the list that this checkpoint has, or that most engines would read."""
    if skips.lists:
        return skips.lists[0].key.rpartition(".")[2]
    keys = Counter(key for view in skips.views for key in view.reading.keys)
    return max(keys, key=lambda key: keys[key])


def full_entry(skips: Skips, module: str) -> str:
    """An entry that every engine takes to mean exactly this module."""
    return f"-:{re.escape(module)}$" if list_key(skips) == "dynamic" else module


def add_entries(patient: Patient, skips: Skips, *entries: str) -> Location:
    """Append entries to the list, and say where it stands."""
    config, key = config_object(patient, skips.declaration), list_key(skips)
    if key == "dynamic":
        config[key] = {**(config.get(key) or {}), **{entry: {} for entry in entries}}
    else:
        config[key] = [*(config.get(key) or []), *entries]
    dotted = f"{skips.declaration.key}.{key}" if skips.declaration.key else key
    return Location(file=skips.declaration.file, key=dotted)


def store_plain(patient: Patient, module: StoredModule) -> str:
    """Replace a quantised module by its own values in bf16, companions and all; returns the new tensor's name."""
    values = module.dequantize().astype(ml_dtypes.bfloat16)
    shard, kept = module.any_part.file, module.form.roles.get("bias")
    for suffix, info in module.parts.items():
        if suffix != kept:
            patient.workspace.drop(info.name)
    name = f"{module.name}.{formats()['plain'].suffix_of(PAYLOAD)}"
    patient.workspace.add(shard, name, values)
    return name


def quantized_linears(patient: Patient, *leaves: str) -> list[StoredModule]:
    """Quantised linears of the decoder, of these names only where some are given, and then no experts."""
    architecture: Architecture | None = patient.evidence.find("architecture")
    mtp_layers = architecture.mtp_layers if architecture is not None else ()

    def suitable(module: StoredModule) -> bool:
        if module.kind != "linear" or not module.form.is_quantized or module.layer in mtp_layers:
            return False
        return not leaves or (module.template.rpartition(".")[2] in leaves and module.expert is None)

    if patient.evidence.get("is_gguf"):
        raise NotApplicable("GGUF types stand in the file itself")
    return patient.modules(suitable)
