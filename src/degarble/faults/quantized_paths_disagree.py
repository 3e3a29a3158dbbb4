"""KVC628: a path with another transform or other codes."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.kv_declaration_edit import declaration_of
from degarble.finding import Location


@fault("KVC628")
def quantized_paths_disagree(patient: Patient) -> Location:
    """Give the last path of a layer another seed, another number of bits, or other codes."""
    paths = declaration_of(patient).get("paths") or []
    if not paths:
        raise NotApplicable("no paths are declared")
    entry = paths[-1]
    key = patient.rng.choice(["seed", "num_bits", "codes"])
    entry[key] = "0" * 16 if key == "codes" else (entry.get(key) or 0) + 1
    return Location(key=f"paths[{len(paths) - 1}]", layer=entry["layer"])
