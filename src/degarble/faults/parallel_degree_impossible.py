"""Plants ENG701."""

from __future__ import annotations

import numpy as np

from degarble.evidence.store import Settings
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

ROWS = frozenset({"gate_proj", "up_proj"})
COLUMNS = frozenset({"down_proj"})


@fault("ENG701", settings=Settings(tensor_parallel=2))
def parallel_degree_impossible(patient: Patient) -> Location:
    """Make the intermediate size odd, in config and tensors alike, in a model to be served on two ranks."""
    modules = patient.modules(_is_mlp)
    if any(not _is_sliceable(module) for module in modules):
        raise NotApplicable("packed or grouped weights cannot be cut by one column")
    config = patient.workspace.json("config.json")
    size = config.get("intermediate_size")
    if not isinstance(size, int) or size % 2:
        raise NotApplicable("no even intermediate_size")
    for module in modules:
        axis = 0 if _leaf(module) in ROWS else 1
        for role in module.form.roles:
            stored = module.array(role)
            if stored.ndim > axis and stored.shape[axis] == size and (axis == 0 or role == PAYLOAD):
                patient.workspace.set(module.parts[module.form.roles[role]].name, np.delete(stored, size - 1, axis))
    config["intermediate_size"] = size - 1
    chosen = patient.pick(modules)
    return Location(file=chosen.any_part.file, module=chosen.name)


def _is_mlp(module: StoredModule) -> bool:
    return module.kind == "linear" and _leaf(module) in ROWS | COLUMNS


def _is_sliceable(module: StoredModule) -> bool:
    scheme, payload = module.form.scheme, module.payload
    if module.expert is not None or payload is None or payload.shape != module.form.shape:
        return False
    return not payload.dtype.startswith("GGUF:") and (scheme is None or scheme.strategy in ("tensor", "channel"))


def _leaf(module: StoredModule) -> str:
    return module.template.rpartition(".")[2]
