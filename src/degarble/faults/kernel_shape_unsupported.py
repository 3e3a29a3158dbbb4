"""Plants ENG704."""

from __future__ import annotations

from typing import Any

from degarble.evidence.declared_key import declared_key
from degarble.evidence.restatements import Restatement
from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.regrouping import can_regroup, regroup
from degarble.faults.skip_list_edit import declaration_of, quantized_linears
from degarble.finding import Location

UNSUPPORTED_GROUP = 16
"""Smaller than the smallest group that Marlin takes."""


@fault("ENG704", settings=Settings(engine="vllm"))
def kernel_shape_unsupported(patient: Patient) -> Location:
    """Store every module in groups of 16, with the same values, and say so in the config."""
    declaration = declaration_of(patient)
    modules = quantized_linears(patient)
    if not all(can_regroup(module) for module in modules):
        raise NotApplicable("not all modules have groups that could be divided")
    for module in modules:
        size = module.form.scheme.group_size if module.form.scheme is not None else None
        if not size or size % UNSUPPORTED_GROUP or size == UNSUPPORTED_GROUP:
            raise NotApplicable("the groups cannot become 16")
        regroup(patient, module, size // UNSUPPORTED_GROUP)
    _write(patient, declaration.file, declared_key(declaration, modules[0].name, "group_size"))
    restated: tuple[Restatement, ...] = patient.evidence.get("restatements")
    for item in restated:
        if item.about == "group_size":
            _write(patient, item.file, item.key)
    return Location(module=patient.pick(modules).name)


def _write(patient: Patient, file: str, key: str) -> None:
    holder: Any = patient.workspace.json(file)
    *path, name = key.split(".")
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or not isinstance(holder.get(name), int):
        raise NotApplicable("the config gives no group size")
    holder[name] = UNSUPPORTED_GROUP
