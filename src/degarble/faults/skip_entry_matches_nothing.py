"""Plants QNT106."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import add_entries, config_object, list_key, quantized_linears, skips_of
from degarble.finding import Location


@fault("QNT106")
def skip_entry_matches_nothing(patient: Patient) -> Location:
    """Append the suffix of a wrapper module to one entry of the list."""
    skips = skips_of(patient)
    if not skips.lists or list_key(skips) == "dynamic":
        raise NotApplicable("no list of names")
    config, key = config_object(patient, skips.declaration), list_key(skips)
    chosen = patient.pick(range(len(config[key])))
    config[key] = [entry + ".linear" if at == chosen else entry for at, entry in enumerate(config[key])]
    return Location(file=skips.declaration.file, key=skips.lists[0].key)


@fault("QNT106")
def skip_entry_misspelt(patient: Patient) -> Location:
    """Add the name of a linear with one letter missing."""
    skips = skips_of(patient)
    module = patient.pick(quantized_linears(patient, "o_proj", "down_proj"))
    misspelt = module.name.removesuffix("_proj") + "_prj"
    return add_entries(patient, skips, f"-:{misspelt}$" if list_key(skips) == "dynamic" else misspelt)


@fault("QNT106")
def skip_pattern_matches_nothing(patient: Patient) -> Location:
    """Add a pattern that is written for another family."""
    skips = skips_of(patient)
    key, method = list_key(skips), skips.declaration.method
    if key != "dynamic" and method != "compressed-tensors":
        raise NotApplicable("no regular expressions in this list")
    sign = "-:" if key == "dynamic" else "re:"
    return add_entries(patient, skips, sign + r".*transformer\.h\.\d+\.attn_out$")
