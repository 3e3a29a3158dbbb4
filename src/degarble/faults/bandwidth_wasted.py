"""KVC613: query heads that load their KV head each for itself."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.kv_declaration_edit import pick_entry
from degarble.finding import Location


@fault("KVC613")
def bandwidth_wasted(patient: Patient) -> Location:
    """Load a KV head once for each query head, or read a sector of 4096 bytes for each row."""
    entry, place = pick_entry(patient, "access")
    entry["is_group_shared"] = False
    entry["sector_bytes"] = 4096
    return place
