"""Plants CFG110."""

from __future__ import annotations

import numpy as np

from degarble.evidence.parameters import Parameters
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.interface import StoredModule


@fault("CFG110")
def tensor_unknown(patient: Patient) -> Location:
    """Rename one projection to a name that no loader maps."""
    module = patient.pick(_known(patient, "linear"))
    return rename_module(patient, module, f"{module.name}ection")


@fault("CFG110")
def tensor_unknown_in_all_layers(patient: Patient) -> Location:
    """Rename one projection in every layer, as a new exporter does."""
    module = patient.pick(_known(patient, "linear"))
    for peer in patient.modules(lambda m: m.template == module.template):
        if peer is not module:
            rename_module(patient, peer, f"{peer.name}ection")
    return rename_module(patient, module, f"{module.name}ection")


@fault("CFG110")
def norm_unknown(patient: Patient) -> Location:
    """Rename one norm."""
    module = patient.pick(_known(patient, "norm"))
    return rename_module(patient, module, f"{module.name}_1")


@fault("CFG110")
def experts_stacked_under_unknown_name(patient: Patient) -> Location:
    """Store a layer's experts as one stack whose name lacks `weight_`, in place of one by one."""
    experts = patient.modules(lambda m: m.expert is not None)
    parameters: Parameters | None = patient.evidence.find("parameters")
    if parameters is None or parameters.unknown:
        raise NotApplicable("unknown architecture, or names are wrong already")
    layer = patient.pick(sorted({m.layer for m in experts if m.layer is not None and m.template.endswith("down_proj")}))
    mine = [m for m in experts if m.layer == layer]
    down = sorted((m for m in mine if m.template.endswith("down_proj")), key=lambda m: m.expert or 0)
    stem = down[0].name.partition(".experts.")[0] + ".experts"
    file = down[0].any_part.file
    for role, suffix in (("payload", "packed"), ("scale", "scale")):
        if down[0].part(role) is not None:
            stack = np.stack([module.array(role) for module in down])
            patient.workspace.add(file, f"{stem}.down_proj_{suffix}", stack)
    for module in mine:
        for info in module.parts.values():
            patient.workspace.drop(info.name)
    return Location(file=file, tensor=f"{stem}.down_proj_packed", layer=layer)


@fault("CFG110")
def experts_stacked_with_nothing_lost(patient: Patient) -> Location:
    """Store the experts of every layer as two stacks whose names lack `weight_`, gate above up, as llm-compressor did."""
    experts = patient.modules(lambda m: m.expert is not None and m.form.format == "compressed_pack")
    parameters: Parameters | None = patient.evidence.find("parameters")
    if parameters is None or parameters.unknown:
        raise NotApplicable("unknown architecture, or names are wrong already")
    places = [
        _stacked(patient, [m for m in experts if m.layer == layer])
        for layer in sorted({m.layer for m in experts if m.layer is not None})
    ]
    return patient.pick(places)


def _stacked(patient: Patient, experts: list[StoredModule]) -> Location:
    """Two stacks in place of one layer's experts."""
    stem = experts[0].name.partition(".experts.")[0] + ".experts"
    leaves = {
        leaf: sorted((m for m in experts if m.template.endswith(f".{leaf}")), key=lambda m: m.expert or 0)
        for leaf in ("gate_proj", "up_proj", "down_proj")
    }
    if not all(leaves.values()) or any(set(m.form.roles) != {"payload", "scale", "shape"} for m in experts):
        raise NotApplicable("experts of other names or parts")
    file = experts[0].any_part.file
    pairs = list(zip(leaves["gate_proj"], leaves["up_proj"], strict=True))
    for role, suffix in (("payload", "packed"), ("scale", "scale")):
        fused = np.stack([np.concatenate([gate.array(role), up.array(role)]) for gate, up in pairs])
        patient.workspace.add(file, f"{stem}.gate_up_proj_{suffix}", fused)
        patient.workspace.add(
            file, f"{stem}.down_proj_{suffix}", np.stack([m.array(role) for m in leaves["down_proj"]])
        )
    rows, columns = pairs[0][0].array("shape")
    shapes = {"gate_up_proj": (len(pairs), 2 * rows, columns), "down_proj": (len(pairs), columns, rows)}
    for leaf, shape in shapes.items():
        patient.workspace.add(file, f"{stem}.{leaf}_shape", np.array(shape, np.int64))
    for module in experts:
        for info in module.parts.values():
            patient.workspace.drop(info.name)
    return Location(file=file, tensor=f"{stem}.gate_up_proj_packed", layer=experts[0].layer)


@fault("CFG110")
def tensor_nobody_reads(patient: Patient) -> Location:
    """Add a matrix that no parameter of the architecture is."""
    module = patient.pick(_known(patient, "norm"))
    if patient.evidence.get("is_gguf"):
        raise NotApplicable("GGUF")
    name = f"{module.name.rpartition('.')[0]}.adapter_gate.weight"
    patient.workspace.add(module.any_part.file, name, module.array("payload"))
    return Location(file=module.any_part.file, tensor=name)


def rename_module(patient: Patient, module: StoredModule, name: str) -> Location:
    """Rename every tensor of a module."""
    place = module.place()
    for info in module.parts.values():
        patient.workspace.rename(info.name, name + info.name.removeprefix(module.name))
    tensor = name + (place.tensor or "").removeprefix(module.name)
    return Location(file=place.file, tensor=tensor, module=name)


def _known(patient: Patient, kind: str) -> list[StoredModule]:
    """Modules of a kind that the architecture needs, whose names are theirs alone."""
    architecture = patient.evidence.find("architecture")
    if architecture is None:
        raise NotApplicable("unknown architecture")
    kv_scales = tuple(name.rpartition(".")[0] for name in patient.evidence.get("kv_scales"))
    return patient.modules(
        lambda m: (
            m.kind == kind
            and m.layer is not None
            and m.canonical is not None
            and m.name not in kv_scales
            and (found := architecture.match(f"{m.canonical}.weight")) is not None
            and found.needed
        )
    )
