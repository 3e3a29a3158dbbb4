"""Plants CKP103."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.shard_missing import INDEX, index_of
from degarble.finding import Location


@fault("CKP103")
def index_names_absent_tensor(patient: Patient) -> Location:
    """Take a tensor out of its file and leave it in the index, a companion where the format has any."""
    weight_map = index_of(patient)
    companions = [
        module.parts[suffix].name
        for module in patient.modules(lambda module: module.kind == "linear" and module.layer is not None)
        for role, suffix in module.form.roles.items()
        if role == "scale"
    ]
    payloads = (info.name for m in patient.modules(lambda module: module.kind == "norm") for info in m.parts.values())
    name = patient.pick(companions or payloads)
    patient.workspace.shard(weight_map[name]).drop(name)
    return Location(file=INDEX, key=f"weight_map.{name}", tensor=name)


@fault("CKP103")
def index_names_absent_tensor_phantom(patient: Patient) -> Location:
    """List a tensor that was never written."""
    weight_map = index_of(patient)
    model = patient.pick(patient.modules(lambda module: module.kind == "norm" and module.layer is not None))
    name = f"{model.name}.extra_scale"
    weight_map[name] = model.any_part.file
    return Location(file=INDEX, tensor=name)


@fault("CKP103")
def index_names_absent_tensor_elsewhere(patient: Patient) -> Location:
    """Point one entry of the index to the wrong file."""
    weight_map = index_of(patient)
    files = sorted(set(weight_map.values()))
    if len(files) < 2:
        raise NotApplicable("needs two files")
    name = patient.pick(weight_map)
    weight_map[name] = patient.pick(file for file in files if file != weight_map[name])
    return Location(file=INDEX, key=f"weight_map.{name}", tensor=name)
