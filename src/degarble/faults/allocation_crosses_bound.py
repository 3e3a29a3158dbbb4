"""KVC609: written as far as the rounded size."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.kv_declaration_edit import pick_entry
from degarble.finding import Location


@fault("KVC609")
def allocation_crosses_bound(patient: Patient) -> Location:
    """Write an allocation up to its rounded size."""
    entry, place = pick_entry(patient, "allocations")
    entry["requested"] = max(1, entry["reserved"] - patient.rng.choice([1, 256, 1024]))
    entry["written"] = entry["reserved"]
    return place
