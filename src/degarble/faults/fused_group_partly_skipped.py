"""Plants QNT108."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import add_entries, full_entry, quantized_linears, skips_of, store_plain
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT108")
def fused_group_partly_skipped(patient: Patient) -> Location:
    """Store one part of a fused group plain, and list it by its full name."""
    skips = skips_of(patient)
    group = patient.pick(_groups(patient))
    module = patient.pick(group)
    add_entries(patient, skips, full_entry(skips, module.name))
    tensor = store_plain(patient, module)
    return Location(file=module.any_part.file, tensor=tensor, module=module.name, layer=module.layer)


@fault("QNT108")
def fused_group_partly_listed(patient: Patient) -> Location:
    """List all but one part of a fused group; what is stored stays quantised."""
    skips = skips_of(patient)
    group = patient.pick(_groups(patient))
    left_out = patient.pick(group)
    named = [module for module in group if module is not left_out]
    place = add_entries(patient, skips, *(full_entry(skips, module.name) for module in named))
    return Location(file=place.file, key=place.key, module=named[0].name, layer=named[0].layer)


def _groups(patient: Patient) -> list[tuple[StoredModule, ...]]:
    suitable = {module.name for module in quantized_linears(patient) if module.expert is None}
    groups: tuple[tuple[StoredModule, ...], ...] = patient.evidence.get("fused_groups")
    chosen = [group for group in groups if all(module.name in suitable for module in group)]
    if not chosen:
        raise NotApplicable("no quantised fused group")
    return chosen
