"""Plants DIV904."""

from __future__ import annotations

from degarble.faults.interface import Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location


@fault("DIV904", needs_reference=True)
def top_token_disagreement(patient: Patient) -> Location:
    """Turn round the final norm's gain, so that every choice at the end is another."""
    found = patient.modules(lambda one: one.canonical == "model.norm" and one.payload is not None)
    replace_values(patient, found[0], codes=-found[0].array("payload"))
    return Location()
