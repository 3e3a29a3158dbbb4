"""Plants QNT102."""

from __future__ import annotations

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.scale_missing import mapped_modules
from degarble.finding import Location
from degarble.formats.detect import detect
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("QNT102")
def scale_orphaned(patient: Patient) -> Location:
    """Drop the payload of one quantised module and leave its companions."""
    module = patient.pick(mapped_modules(patient, leaves_companions))
    patient.workspace.drop(module.any_part.name)
    return _orphan(module)


@fault("QNT102")
def scales_orphaned_in_all_layers(patient: Patient) -> Location:
    """Drop the payload of one projection in every layer and leave the companions."""
    module = patient.pick(mapped_modules(patient, leaves_companions))
    for peer in patient.modules(lambda peer: peer.template == module.template and peer.payload is not None):
        patient.workspace.drop(peer.any_part.name)
    return _orphan(module)


@fault("QNT102")
def scale_orphaned_beside_plain(patient: Patient) -> Location:
    """Add the companion of a quantised module to a module that is plain by the config."""
    donor = patient.pick(patient.modules(leaves_companions))
    target = patient.pick(patient.modules(lambda m: m.kind in ("embedding", "norm") and m.form.format == "plain"))
    role = patient.pick(role for role in donor.form.roles if role not in (PAYLOAD, "bias"))
    suffix = donor.form.roles[role]
    if suffix.startswith("_") or "." in suffix or not _strays(target, donor, suffix):
        raise NotApplicable(f"{suffix} beside a plain weight reads as another name")
    name = f"{target.name}.{suffix}"
    patient.workspace.add(target.any_part.file, name, donor.array(role))
    return Location(file=target.any_part.file, tensor=name, module=target.name)


def leaves_companions(module: StoredModule) -> bool:
    """Whether the module's companions would be known as such without its payload."""
    if not module.form.is_quantized or module.payload is None:
        return False
    rest = {suffix: info for suffix, info in module.parts.items() if suffix != module.form.roles[PAYLOAD]}
    return detect(rest, module.form.scheme, module.form.shape)[1].format == "companions"


def _strays(target: StoredModule, donor: StoredModule, suffix: str) -> bool:
    form = detect({**target.parts, suffix: donor.parts[suffix]}, None, None)[1]
    return form.format == "plain" and bool(form.orphaned)


def _orphan(module: StoredModule) -> Location:
    role = next(role for role, suffix in _in_file_order(module) if role not in (PAYLOAD, "bias"))
    return module.place(role)


def _in_file_order(module: StoredModule) -> list[tuple[str, str]]:
    order = list(module.parts)
    return sorted(module.form.roles.items(), key=lambda item: order.index(item[1]))
