"""Plants QNT113."""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT113")
def g_idx_uninformative(patient: Patient) -> Location:
    """Fill the group index of one module with zeros."""
    module = patient.pick(_indexed(patient))
    return _write(patient, module, np.zeros_like(module.array("g_idx")))


@fault("QNT113")
def all_group_indices_zero(patient: Patient) -> Location:
    """Fill every group index with zeros."""
    modules = _indexed(patient)
    for module in modules[1:]:
        _write(patient, module, np.zeros_like(module.array("g_idx")))
    return _write(patient, modules[0], np.zeros_like(modules[0].array("g_idx")))


@fault("QNT113")
def group_out_of_range(patient: Patient) -> Location:
    """Let one input belong to a group behind the last."""
    module = patient.pick(_indexed(patient))
    index = module.array("g_idx").copy()
    index[patient.rng.randrange(index.size)] = index.max() + 1
    return _write(patient, module, index)


@fault("QNT113")
def groups_uneven(patient: Patient) -> Location:
    """Move some inputs of one group to another."""
    module = patient.pick(_indexed(patient))
    index = module.array("g_idx").copy()
    first, last = int(index.min()), int(index.max())
    index[np.flatnonzero(index == first)[:4]] = last
    return _write(patient, module, index)


@fault("QNT113")
def order_denied(patient: Patient) -> Location:
    """Write `desc_act: false` over a checkpoint whose inputs are shuffled."""
    declaration = declaration_of(patient)
    shuffled = [module for module in _indexed(patient) if bool((np.diff(module.array("g_idx")) < 0).any())]
    module = patient.pick(shuffled)
    key = declared_key(declaration, module.name, "act_order")
    config, name = config_object(patient, declaration), key.rpartition(".")[2]
    if config.get(name) is not True:
        raise NotApplicable("no order is declared")
    config[name] = False
    return Location(file=declaration.file, key=key)


def _indexed(patient: Patient) -> list[StoredModule]:
    """Modules with a group index over several groups."""

    def suitable(module: StoredModule) -> bool:
        return module.part("g_idx") is not None and int(module.array("g_idx").max()) > 0

    return patient.modules(suitable)


def _write(patient: Patient, module: StoredModule, index: Array) -> Location:
    info = module.parts[module.form.roles["g_idx"]]
    patient.workspace.set(info.name, index)
    return Location(file=info.file, tensor=info.name, module=module.name, layer=module.layer)
