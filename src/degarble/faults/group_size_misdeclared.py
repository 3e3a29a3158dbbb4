"""Plants WGT208."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.faults.integer_codes import integer_modules
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.regrouping import can_regroup
from degarble.faults.skip_list_edit import declaration_of
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule

MIN_MODULES = 2
MIN_GROUPS = 8
"""With fewer groups in a row, shuffled inputs leave every group an extreme."""


@fault("WGT208")
def group_size_misdeclared(patient: Patient) -> Location:
    """Read a table of scales as if groups were half as large: it is laid out again and again."""
    return _everywhere(patient, 2, lambda table, axis: np.concatenate([table, table], axis=axis))


@fault("WGT208")
def group_size_too_large(patient: Patient) -> Location:
    """Keep every other group's scale and declare groups of twice the size."""
    return _everywhere(patient, -2, lambda table, axis: np.take(table, range(0, table.shape[axis], 2), axis=axis))


@fault("WGT208")
def group_size_halved_with_repeats(patient: Patient) -> Location:
    """Store every scale twice and declare groups of half the size: weights stay right, the file is not what it says."""
    return _everywhere(patient, 2, lambda table, axis: np.repeat(table, 2, axis=axis))


@fault("WGT208")
def activation_order_lost(patient: Patient) -> Location:
    """Store the inputs of one module in another order than that of its groups."""
    module = patient.pick(one for one in integer_modules(patient) if _has_groups(one))
    _lose_order(patient, module)
    return module.place()


@fault("WGT208")
def activation_order_lost_everywhere(patient: Patient) -> Location:
    """The same in every module."""
    modules = [one for one in integer_modules(patient) if _has_groups(one)]
    for one in modules:
        _lose_order(patient, one)
    return patient.pick(modules).place()


def _has_groups(module: StoredModule) -> bool:
    scheme, shape = module.form.scheme, module.form.shape
    size = scheme.group_size if scheme is not None else None
    return bool(size and shape and shape[1] >= MIN_GROUPS * size and module.form.format != "gguf")


def _lose_order(patient: Patient, module: StoredModule) -> None:
    index = module.group_index()
    if module.part("g_idx") is not None and index is not None and bool((np.diff(index) < 0).any()):
        replace_values(patient, module, group_index=np.sort(index))
        return
    codes = module.codes()
    order = np.random.default_rng(patient.rng.randrange(1 << 30)).permutation(codes.shape[1])
    replace_values(patient, module, codes=codes[:, order])


def _everywhere(patient: Patient, factor: int, change: Callable[[Array, int], Array]) -> Location:
    declaration = declaration_of(patient)
    modules = [one for one in integer_modules(patient) if can_regroup(one)]
    if len(modules) < MIN_MODULES or len(modules) < len(integer_modules(patient)):
        raise NotApplicable("not all modules can be regrouped")
    key = declared_key(declaration, modules[0].name, "group_size")
    holder = patient.workspace.json(declaration.file)
    *path, name = key.split(".")
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or type(holder.get(name)) is not int:
        raise NotApplicable("the config gives no group size")
    size = _scaled(holder[name], factor)
    for one in modules:
        _regroup(patient, one, size, change)
    _write(patient.workspace.json(declaration.file), path, name, size)
    for item in patient.evidence.find("restatements") or ():
        if item.about == "group_size":
            *path, name = item.key.split(".")
            _write(patient.workspace.json(item.file), path, name, size)
    return Location(file=declaration.file, key=key)


def _scaled(size: int, factor: int) -> int:
    return size // factor if factor > 0 else size * -factor


def _write(holder: dict[str, object], path: list[str], name: str, size: int) -> None:
    for part in path:
        inner = holder[part]
        if not isinstance(inner, dict):
            raise NotApplicable("the config gives no group size")
        holder = inner
    holder[name] = size


def _regroup(patient: Patient, module: StoredModule, size: int, change: Callable[[Array, int], Array]) -> None:
    scheme, shape = module.form.scheme, module.form.shape
    if scheme is None or shape is None or not scheme.group_size or shape[1] % size or shape[1] % scheme.group_size:
        raise NotApplicable("the inputs are no multiple of the new size")
    groups, stored_index = shape[1] // scheme.group_size, module.part("g_idx")
    if stored_index is not None:
        if bool((np.diff(module.array("g_idx")) < 0).any()):
            raise NotApplicable("the inputs are shuffled")
        patient.workspace.set(stored_index.name, (np.arange(shape[1]) // size).astype(module.array("g_idx").dtype))
    for role in ("scale", "zero_point"):
        part = module.part(role)
        if part is not None:
            table = module.array(role)
            patient.workspace.set(part.name, change(table, _group_axis(table, groups, shape[0])))


def _group_axis(table: Array, groups: int, out_features: int) -> int:
    axes = [axis for axis, length in enumerate(table.shape) if length == groups]
    if table.ndim != 2 or len(axes) != 1 or groups == out_features:
        raise NotApplicable("the axis of the groups cannot be told")
    return axes[0]
