"""Plants QNT112."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of
from degarble.finding import Location


@fault("QNT112")
def act_order_without_groups(patient: Patient) -> Location:
    """Ask for a stored group order in a scheme without groups."""
    return _set(patient, "group")


@fault("QNT112")
def static_order_without_groups(patient: Patient) -> Location:
    """Ask for the order that leaves no trace, in the manner of old exporters: without stating a version."""
    config = config_object(patient, declaration_of(patient))
    place = _set(patient, "static")
    config.pop("version", None)
    return place


def _set(patient: Patient, value: str) -> Location:
    declaration = declaration_of(patient)
    if declaration.method != "compressed-tensors":
        raise NotApplicable("only compressed-tensors has the key")
    weights, key = patient.pick(_ungrouped(config_object(patient, declaration), declaration.key))
    weights["actorder"] = value
    return Location(file=declaration.file, key=f"{key}.actorder")


def _ungrouped(config: dict[str, Any], key: str) -> Iterator[tuple[dict[str, Any], str]]:
    for name, group in config.get("config_groups", {}).items():
        weights = group.get("weights")
        if isinstance(weights, dict) and weights.get("strategy") in ("tensor", "channel", "block"):
            yield weights, f"{key}.config_groups.{name}.weights"
