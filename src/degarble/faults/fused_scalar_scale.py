"""Plants QNT118."""

from __future__ import annotations

from typing import Any

import numpy as np

from degarble.evidence.declared_key import declared_key
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import declaration_of
from degarble.finding import Location
from degarble.formats.interface import StoredModule

FUSED_LEAVES = frozenset({"qkv_proj", "gate_up_proj", "query_key_value", "W_pack", "Wqkv"})


@fault("QNT118")
def fused_scalar_scale(patient: Patient) -> Location:
    """Replace the scales per output row by one per tensor, in all modules of a family that stores them fused."""
    declaration_of(patient)
    modules = patient.modules(_has_row_scales)
    fused = patient.pick(module for module in modules if module.template.rpartition(".")[2] in FUSED_LEAVES)
    for module in modules:
        part = module.parts[module.form.roles["scale"]]
        patient.workspace.set(part.name, np.asarray(module.array("scale").max()).reshape(1))
    _declare_per_tensor(patient, fused)
    return Location(file=fused.any_part.file, tensor=fused.place("scale").tensor, module=fused.name)


def _has_row_scales(module: StoredModule) -> bool:
    scheme = module.form.scheme
    return (
        module.form.is_quantized
        and scheme is not None
        and scheme.strategy == "channel"
        and "scale" in module.form.roles
    )


def _declare_per_tensor(patient: Patient, module: StoredModule) -> None:
    declaration = declaration_of(patient)
    *path, name = declared_key(declaration, module.name, "group_size").split(".")
    holder: Any = patient.workspace.json(declaration.file)
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if name != "strategy" or not isinstance(holder, dict):
        raise NotApplicable("the config does not name a strategy")
    holder["strategy"] = "tensor"
