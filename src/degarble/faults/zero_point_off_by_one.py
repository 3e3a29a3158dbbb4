"""Plants WGT206."""

from __future__ import annotations

from degarble.faults.integer_codes import integer_modules, same_layer, shift_zero_points
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.skip_list_edit import config_object, declaration_of
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule

LABELS = ("format", "checkpoint_format")
"""Where GPTQModel and AutoGPTQ write the version; some files have both."""
VERSION_2 = "gptq_v2"


@fault("WGT206")
def zero_point_off_by_one(patient: Patient) -> Location:
    """Add one to every zero point of one module."""
    module = patient.pick(integer_modules(patient))
    shift_zero_points(patient, module, 1)
    return _place(module)


@fault("WGT206")
def zero_point_one_too_low(patient: Patient) -> Location:
    """Subtract one from every zero point of one module."""
    module = patient.pick(integer_modules(patient))
    shift_zero_points(patient, module, -1)
    return _place(module)


@fault("WGT206")
def zero_points_of_one_layer(patient: Patient) -> Location:
    """Add one to every zero point of one layer or expert."""
    modules = integer_modules(patient)
    module = patient.pick(modules)
    for one in same_layer(modules, module):
        shift_zero_points(patient, one, 1)
    return _place(module)


@fault("WGT206")
def zero_points_low_everywhere(patient: Patient) -> Location:
    """Subtract one from every zero point of the model; no label of GPTQ v1 explains that."""
    modules = integer_modules(patient)
    if any((one.form.scheme.format if one.form.scheme else None) == "gptq_v2" for one in modules):
        raise NotApplicable("another version explains it")
    for one in modules:
        shift_zero_points(patient, one, -1)
    return _place(patient.pick(modules))


@fault("WGT206")
def zero_points_of_the_other_version(patient: Patient) -> Location:
    """Store the zero points of a GPTQ v1 file as v2 does, under the old label."""
    declaration = declaration_of(patient)
    config = config_object(patient, declaration)
    modules = integer_modules(patient)
    if declaration.method != "gptq" or any(VERSION_2 in (config.get(label) or "") for label in LABELS):
        raise NotApplicable("not GPTQ v1")
    for one in modules:
        shift_zero_points(patient, one, 1)
    written = [label for label in LABELS if isinstance(config.get(label), str)] or [LABELS[-1]]
    return Location(file=declaration.file, key=f"{declaration.key}.{written[0]}".lstrip("."))


def _place(module: StoredModule) -> Location:
    return module.place("zero_point" if module.part("zero_point") is not None else PAYLOAD)
