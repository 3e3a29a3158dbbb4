"""Plants QNT104."""

from __future__ import annotations

from typing import Any

from degarble.evidence.declared_key import declared_key
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.regrouping import can_regroup, regroup
from degarble.faults.skip_list_edit import declaration_of, quantized_linears
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("QNT104")
def bits_or_group_contradict(patient: Patient) -> Location:
    """Write 8 for 4 bits, or 4 for 8, into the config."""
    holder, name, key = _written(patient, "num_bits")
    if not _is_number(holder[name]):
        raise NotApplicable("the config gives no number of bits")
    if all(_holds_any_width(module) for module in quantized_linears(patient)):
        raise NotApplicable("an int8 for every code holds any width")
    holder[name] = 4 if holder[name] == 8 else 8
    return Location(file=declaration_of(patient).file, key=key)


@fault("QNT104")
def group_size_halved(patient: Patient) -> Location:
    """Write half the group size into the config."""
    return _scale_group_size(patient, lambda size: size // 2)


@fault("QNT104")
def group_size_doubled(patient: Patient) -> Location:
    """Write twice the group size into the config."""
    return _scale_group_size(patient, lambda size: size * 2)


@fault("QNT104")
def group_size_of_a_row(patient: Patient) -> Location:
    """Write -1 for the group size: one scale a row."""
    return _scale_group_size(patient, lambda size: -1)


@fault("QNT104")
def one_module_regrouped(patient: Patient) -> Location:
    """Store one module in groups of half the size, without a word in the config."""
    declaration_of(patient)
    suitable = [module for module in quantized_linears(patient) if can_regroup(module)]
    module = patient.pick(suitable)
    regroup(patient, module, 2)
    scale = module.place("scale")
    return Location(file=scale.file, tensor=scale.tensor, module=module.name, layer=module.layer)


@fault("QNT104")
def method_label_swapped(patient: Patient) -> Location:
    """Label a GPTQ checkpoint as AWQ, or the other way round."""
    declaration = declaration_of(patient)
    others = {"gptq": "awq", "awq": "gptq"}
    if declaration.method not in others or "quant_method" not in declaration.raw:
        raise NotApplicable("neither GPTQ nor AWQ")
    value: Any = patient.workspace.json(declaration.file)
    for name in declaration.key.split(".") if declaration.key else ():
        value = value[name]
    value["quant_method"] = others[declaration.method]
    return Location(file=declaration.file, key=f"{declaration.key}.quant_method".lstrip("."))


def _scale_group_size(patient: Patient, change: Any) -> Location:
    holder, name, key = _written(patient, "group_size")
    if not _is_number(holder[name]) or holder[name] < 2:
        raise NotApplicable("the config gives no group size")
    if change(2) == -1 and holder.get("actorder"):
        raise NotApplicable("an activation order would lose its groups: another fault")
    holder[name] = change(holder[name])
    if holder[name] == -1 and isinstance(holder.get("strategy"), str):
        holder["strategy"] = "channel"
    return Location(file=declaration_of(patient).file, key=key if holder[name] != -1 else None)


def _written(patient: Patient, about: str) -> tuple[dict[str, Any], str, str]:
    """The object in the config that holds a fact about the quantised modules, its key in there, and the dotted key."""
    declaration = declaration_of(patient)
    module = patient.pick(quantized_linears(patient))
    key = declared_key(declaration, module.name, about)
    holder: Any = patient.workspace.json(declaration.file)
    *path, name = key.split(".")
    for part in path:
        holder = holder.get(part) if isinstance(holder, dict) else None
    if not isinstance(holder, dict) or name not in holder:
        raise NotApplicable(f"the config does not say {about}")
    return holder, name, key


def _holds_any_width(module: StoredModule) -> bool:
    """compressed-tensors stores unpacked integers of any width one a byte."""
    payload = module.payload
    return payload is not None and payload.dtype == "I8" and payload.shape == module.form.shape


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
