"""Plants WGT220."""

from __future__ import annotations

from dataclasses import replace

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import is_linear, overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("WGT220")
def layer_duplicated(patient: Patient) -> Location:
    """Write the linears of one layer over those of another."""
    linears = patient.modules(lambda m: is_linear(m) or m.kind == "router")
    layers: dict[int, dict[object, StoredModule]] = {}
    for module in linears:
        if module.layer is not None:
            layers.setdefault(module.layer, {})[module.template, module.expert] = module
    pairs = [
        (one, two)
        for one in layers
        for two in layers
        if one < two and layers[one].keys() == layers[two].keys() and _all_fit(layers[one], layers[two])
    ]
    source, target = patient.pick(pairs)
    for key, module in layers[source].items():
        _copy(patient, module, layers[target][key])
    return next(iter(layers[target].values())).place()


@fault("WGT220")
def module_duplicated(patient: Patient) -> Location:
    """Write one projection over its neighbour in the same layer: gate over up, key over value."""
    linears = {m.name: m for m in patient.modules(is_linear)}
    pairs = [
        (module, linears[other])
        for name, module in linears.items()
        for left, right in (
            ("gate_proj", "up_proj"),
            ("k_proj", "v_proj"),
            ("ffn_gate", "ffn_up"),
            ("attn_k", "attn_v"),
        )
        if name.endswith(left) and (other := name.removesuffix(left) + right) in linears
    ]
    source, target = patient.pick(pair for pair in pairs if _fits(*pair))
    _copy(patient, source, target)
    return target.place()


@fault("WGT220")
def expert_duplicated(patient: Patient) -> Location:
    """Write one expert over another of its layer, in a layer with more than two."""
    experts = patient.modules(lambda m: is_linear(m) and m.expert is not None)
    module = patient.pick(experts)
    numbers = sorted({m.expert for m in experts if m.layer == module.layer and m.expert is not None})
    if len(numbers) < 4:
        raise NotApplicable("too few experts")
    source, target = sorted(patient.rng.sample(numbers, 2))
    chosen = {(m.expert, m.template): m for m in experts if m.layer == module.layer and m.expert in (source, target)}
    copies = [m for (number, _), m in chosen.items() if number == target]
    for copy in copies:
        _copy(patient, chosen[source, copy.template], copy)
    return replace(copies[0].place())


def _fits(source: StoredModule, target: StoredModule) -> bool:
    """Whether every part of one fits into the other."""
    return (
        all(
            (part := target.part(role)) is not None
            and source.part(role) is not None
            and (part.dtype, part.shape, part.nbytes) == (own.dtype, own.shape, own.nbytes)
            for role in source.form.roles
            if (own := source.parts[source.form.roles[role]])
        )
        and source.form.roles.keys() == target.form.roles.keys()
    )


def _all_fit(source: dict[object, StoredModule], target: dict[object, StoredModule]) -> bool:
    return all(_fits(module, target[key]) for key, module in source.items())


def _copy(patient: Patient, source: StoredModule, target: StoredModule) -> None:
    for role, suffix in source.form.roles.items():
        overwrite(patient, target.parts[target.form.roles[role]], source.reader.raw(source.parts[suffix]))
