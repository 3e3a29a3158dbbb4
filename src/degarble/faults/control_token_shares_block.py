"""KVC611: a block that goes on after a control token."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.kv_declaration_edit import declaration_of, pick_entry
from degarble.finding import Location


@fault("KVC611")
def control_token_shares_block(patient: Patient) -> Location:
    """Leave out the boundary after a control token."""
    entry, place = pick_entry(patient, "sequences")
    policy = declaration_of(patient).get("isolation") or {}
    tokens = policy.get("control_tokens", {})
    ids = entry["ids"]
    ended = [at for at in entry["edges"] if 0 < at < len(ids) and tokens.get(str(ids[at - 1])) in policy["classes"]]
    if not ended:
        raise NotApplicable("no block ends after a control token")
    edge = patient.pick(ended)
    entry["edges"].remove(edge)
    return Location(key=place.key, request=entry["request"], position=edge - 1)
