"""Plants WGT216."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.layer_series import MIN_LAYERS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import has_codes, is_linear, write_parts
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile

MODULE_FACTOR, INSIDE_FACTOR = 16.0, 256.0
CALM_OCTAVES = 1.0
"""A block or row that is ordinary to begin with."""


@fault("WGT216")
def scale_outlier(patient: Patient) -> Location:
    """Multiply all scales of one module by 16."""
    modules = _suitable(patient)
    by_template: dict[str, set[int | None]] = {}
    for one in modules:
        by_template.setdefault(one.template, set()).add(one.layer)
    enough = [one for one in modules if len(by_template[one.template]) >= MIN_LAYERS and one.layer]
    if not enough:
        raise NotApplicable(f"fewer than {MIN_LAYERS} layers: no peers")
    module = patient.pick(enough)
    _scale(patient, module, lambda scales: scales * np.float32(MODULE_FACTOR))
    return module.place("scale")


@fault("WGT216")
def scale_of_a_block(patient: Patient) -> Location:
    """Multiply one block's scale by 256."""
    module = patient.pick(one for one in _suitable(patient) if min(_scales(one).shape) >= 4)
    scales = _scales(module)
    row, group = _calm_place(patient, scales)
    _scale(patient, module, lambda table: _multiplied(table, (row, group)))
    return replace(module.place("scale"), row=row)


@fault("WGT216")
def scales_of_a_row(patient: Patient) -> Location:
    """Multiply the scales of one output by 256."""
    module = patient.pick(one for one in _suitable(patient) if _is_by_row(one))
    logs = np.log2(np.abs(_scales(module)))
    means = logs.mean(axis=1)
    calm = np.flatnonzero(np.abs(means - np.median(means)) < CALM_OCTAVES)
    row = int(patient.pick(calm.tolist()))
    _scale(patient, module, lambda table: _multiplied(table, row))
    return replace(module.place("scale"), row=row)


def _suitable(patient: Patient) -> list[StoredModule]:
    found = patient.modules(lambda one: has_codes(one) and is_linear(one) and len(one.form.shape or ()) == 2)
    profiles: Mapping[str, ModuleProfile] = patient.evidence.find("module_profiles") or {}
    readable = [one for one in found if one.name in profiles and _has_scales(one)]
    if not readable:
        raise NotApplicable("no scales that could be changed")
    return readable


def _has_scales(module: StoredModule) -> bool:
    try:
        scales = module.scales()
    except (ValueError, KeyError):
        return False
    is_nested = module.part("nested_scale") is not None  # changing one would change its neighbours
    return scales.ndim == 2 and bool((scales != 0).all()) and not is_nested


def _scales(module: StoredModule) -> Array:
    return module.scales()


def _is_by_row(module: StoredModule) -> bool:
    """One scale or more for each output."""
    return bool(_scales(module).shape[0] == (module.form.shape or (0,))[0])


def _calm_place(patient: Patient, scales: Array) -> tuple[int, int]:
    logs = np.log2(np.abs(scales))
    rest = logs - np.median(logs, axis=1, keepdims=True)
    rest = np.abs(rest - np.median(rest, axis=0))
    row, group = patient.pick(np.argwhere(rest < CALM_OCTAVES).tolist())
    return int(row), int(group)


def _multiplied(table: Array, at: int | tuple[int, int]) -> Array:
    changed = np.array(table, np.float32)
    changed[at] *= INSIDE_FACTOR
    return changed


def _scale(patient: Patient, module: StoredModule, change: Callable[[Array], Array]) -> None:
    wanted = change(module.scales())
    try:
        parts = module.replace(scales=wanted)
    except (ValueError, KeyError, NotImplementedError) as reason:
        raise NotApplicable(str(reason)) from None
    dtypes = {info.name: info.dtype for info in module.parts.values()}
    for name, array in parts.items():
        values = array.astype(np.float32) if dtypes[name] in ("F8_E4M3", "F16", "BF16") else np.zeros(1)
        if not np.isfinite(values).all() or (dtypes[name] == "F8_E4M3" and np.abs(values).max() >= 448):
            raise NotApplicable(f"{name} cannot hold so large a scale")
    write_parts(patient, module, parts)
