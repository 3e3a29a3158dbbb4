"""Editing a KV-cache declaration: what the planted faults of KVC rules share."""

from __future__ import annotations

from typing import Any

from degarble.faults.interface import NotApplicable, Patient
from degarble.finding import Location


def declaration_of(patient: Patient) -> dict[str, Any]:
    """The document, to be edited in place. Raises NotApplicable in a checkpoint, which has none."""
    name = patient.evidence.find("cache_file")
    if name is None or not name.endswith(".json"):
        raise NotApplicable("no KV-cache declaration in JSON")
    document: dict[str, Any] = patient.workspace.json(name)
    return document


def pick_entry(patient: Patient, key: str) -> tuple[dict[str, Any], Location]:
    """One entry of a list of the document, and its place. Raises NotApplicable where there is none."""
    found = declaration_of(patient).get(key) or []
    at = patient.pick(range(len(found)))
    return found[at], Location(key=f"{key}[{at}]")
