"""KVC620: an output that changes with the poison."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.kv_declaration_edit import pick_entry
from degarble.finding import Location


@fault("KVC620")
def tail_reaches_output(patient: Patient) -> Location:
    """Let a run with poison differ, by a little or by NaN."""
    entry, place = pick_entry(patient, "poison")
    entry["max_abs_difference"] = patient.rng.choice([None, 1e-6, 0.4])
    return place
