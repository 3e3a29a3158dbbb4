"""Plants WGT222."""

from __future__ import annotations

from collections.abc import Mapping

from degarble.evidence.modules import Modules
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.profile.module_profile import ModuleProfile
from degarble.profile.swizzle import TILE_COLUMNS, TILE_ROWS, swizzled

TELLING = 7.0
"""Deviations by which healthy scales must be in order; with fewer rows and columns nobody could tell."""


@fault("WGT222")
def scales_swizzled(patient: Patient) -> Location:
    """Store the block scales of one module in the kernel's tile order."""
    module = patient.pick(_suitable(patient, TELLING))
    _swizzle(patient, module)
    return module.place("scale")


@fault("WGT222")
def scales_swizzled_everywhere(patient: Patient) -> Location:
    """Store all block scales in the kernel's tile order."""
    telling = _suitable(patient, TELLING)
    for module in _suitable(patient, 0.0):
        _swizzle(patient, module)
    return patient.pick(telling).place("scale")


def _suitable(patient: Patient, least: float) -> list[StoredModule]:
    profiles: Mapping[str, ModuleProfile] = patient.evidence.find("module_profiles") or {}
    modules: Modules = patient.evidence.get("modules")
    orders = {name: profile.scales.tiles for name, profile in profiles.items() if profile.scales is not None}
    found = [modules[name] for name, value in orders.items() if value is not None and value > least]
    if not found:
        raise NotApplicable("no block scales whose order could be told")
    return found


def _swizzle(patient: Patient, module: StoredModule) -> None:
    info, array = module.part("scale"), module.array("scale")
    if info is None or array.ndim != 2 or array.shape[0] % TILE_ROWS or array.shape[1] % TILE_COLUMNS:
        raise NotApplicable(f"{module.name} has no table of block scales")
    overwrite(patient, info, swizzled(array))
