"""Plants QNT107."""

from __future__ import annotations

from degarble.engines.skip_rules import skipped_names
from degarble.evidence.skips import Skips
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import (
    add_entries,
    full_entry,
    list_key,
    quantized_linears,
    skips_of,
    store_plain,
)
from degarble.finding import Location

MIN_LAYERS = 11
"""From here on `layers.1` is also the beginning of `layers.10`."""


@fault("QNT107")
def skip_list_read_differently(patient: Patient) -> Location:
    """Store one module plain, and list it by the end of its name only."""
    skips = skips_of(patient)
    module = patient.pick(quantized_linears(patient, "o_proj", "down_proj"))
    short = ".".join(module.name.split(".")[-4:])
    if list_key(skips) == "dynamic":
        raise NotApplicable("regular expressions have no short names")
    if all(skipped_names(view.reading.rule, [short], [module.name]).skipped for view in skips.views):
        raise NotApplicable("every engine reads a short name alike")
    place = add_entries(patient, skips, short)
    tensor = store_plain(patient, module)
    return Location(file=place.file, key=place.key, tensor=tensor, module=module.name, layer=module.layer)


@fault("QNT107")
def router_entry_takes_gate_along(patient: Patient) -> Location:
    """List the router of a layer that has none: to some engines that is `gate_proj` too."""
    skips = skips_of(patient)
    module = patient.pick(m for m in quantized_linears(patient, "gate_proj") if m.expert is None)
    return _disputed(patient, skips, module.name.removesuffix("_proj"), module.name)


@fault("QNT107")
def layer_entry_takes_tenth_along(patient: Patient) -> Location:
    """Store layer 1 plain and list it without its end: to some engines that is layers 10 to 19 too."""
    skips = skips_of(patient)
    linears = quantized_linears(patient)
    tenth = patient.pick(module for module in linears if module.layer == MIN_LAYERS - 1)
    first = [module for module in linears if module.layer == 1]
    place = _disputed(patient, skips, tenth.name.partition(".layers.")[0] + ".layers.1", tenth.name)
    for module in first:
        store_plain(patient, module)
    return place


@fault("QNT107")
def quantized_module_listed(patient: Patient) -> Location:
    """List a module that is stored quantised, by its full name."""
    skips = skips_of(patient)
    module = patient.pick(quantized_linears(patient, "o_proj", "down_proj"))
    place = add_entries(patient, skips, full_entry(skips, module.name))
    return Location(file=place.file, key=place.key, module=module.name, layer=module.layer)


def _disputed(patient: Patient, skips: Skips, entry: str, victim: str) -> Location:
    """Add an entry, if engines disagree about the victim."""
    if list_key(skips) == "dynamic":
        raise NotApplicable("the list holds regular expressions")
    verdicts = {bool(skipped_names(view.reading.rule, [entry], [victim]).skipped) for view in skips.views}
    if verdicts != {True, False}:
        raise NotApplicable("engines agree about this entry")
    place = add_entries(patient, skips, entry)
    return Location(file=place.file, key=place.key, module=victim)
