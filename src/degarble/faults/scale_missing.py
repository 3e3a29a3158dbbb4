"""Plants QNT101."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from degarble.evidence.input_scales import INPUT_SCALE
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.finding import Location
from degarble.formats.detect import detect
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("QNT101")
def scale_missing(patient: Patient) -> Location:
    """Drop one companion that one quantised module needs."""
    return _drop_from_one(patient, lambda module: True)


@fault("QNT101")
def scale_missing_from_one_expert(patient: Patient) -> Location:
    """Drop a needed companion of one expert."""
    return _drop_from_one(patient, lambda module: module.expert is not None)


@fault("QNT101")
def scale_missing_from_all_of_a_type(patient: Patient) -> Location:
    """Drop the same companion of one projection in every layer."""
    module, role = patient.pick(_candidates(patient, lambda module: True))
    for peer in patient.modules(lambda peer: peer.template == module.template):
        _drop(patient, peer, (role,))
    return module.place()


@fault("QNT101")
def companions_missing_together(patient: Patient) -> Location:
    """Drop every companion that one module needs, so that only its codes are left."""
    module, _ = patient.pick(_candidates(patient, lambda module: True))
    roles = needed_roles(module)
    _expect_still_missing(module, roles)
    _drop(patient, module, roles)
    return module.place()


@fault("QNT101")
def input_scale_missing_from_one_module(patient: Patient) -> Location:
    """Drop the stored activation scale of one module, where the rest of the model keeps theirs."""
    modules = mapped_modules(patient, lambda m: m.expert is None and INPUT_SCALE in needed_roles(m))
    if len(modules) < 2:
        raise NotApplicable("no second module that keeps its activation scale")
    module = patient.pick(modules)
    _drop(patient, module, (INPUT_SCALE,))
    return module.place()


@fault("QNT101")
def derivable_scale_left_out(patient: Patient) -> Location:
    """Leave out a companion that follows from others, in every module, as an exporter for one kernel does."""
    found = mapped_modules(patient, lambda m: bool(_derivable_roles(m)))
    for module in found:
        _drop(patient, module, _derivable_roles(module))
    return patient.pick(found).place()


def _derivable_roles(module: StoredModule) -> tuple[str, ...]:
    """Stored companions that follow from other stored ones."""
    stored = module.form.roles
    return tuple(role for role, sources in module.format.derived.items() if {role, *sources} <= set(stored))


def mapped_modules(patient: Patient, suitable: Callable[[StoredModule], bool]) -> list[StoredModule]:
    """Modules that loaders of this family map: what happens to the others is CFG110's effect."""
    architecture = patient.evidence.find("architecture")

    def is_mapped(module: StoredModule) -> bool:
        name = module.canonical or module.name
        return architecture is None or any(architecture.match(n) is not None for n in (f"{name}.weight", name))

    return patient.modules(lambda module: suitable(module) and is_mapped(module))


def needed_roles(module: StoredModule) -> tuple[str, ...]:
    """Companions whose absence the module's format calls missing."""
    companions = [role for role in module.form.roles if role != PAYLOAD]
    return tuple(role for role in companions if role in _without(module, (role,)))


def _without(module: StoredModule, roles: Sequence[str]) -> tuple[str, ...]:
    """What the headers would lack without some parts."""
    gone = {module.form.roles[role] for role in roles}
    parts = {suffix: info for suffix, info in module.parts.items() if suffix not in gone}
    _, form = detect(parts, module.form.scheme, module.form.shape)
    return form.missing


def _expect_still_missing(module: StoredModule, roles: Sequence[str]) -> None:
    if not _without(module, roles):
        raise NotApplicable(f"without {', '.join(roles)} nobody can tell the format of {module.name}")


def _candidates(patient: Patient, suitable: Callable[[StoredModule], bool]) -> list[tuple[StoredModule, str]]:
    modules = mapped_modules(patient, lambda m: m.form.is_quantized and m.payload is not None and suitable(m))
    return [(m, role) for m in modules for role in needed_roles(m) if role != INPUT_SCALE]


def _drop_from_one(patient: Patient, suitable: Callable[[StoredModule], bool]) -> Location:
    module, role = patient.pick(_candidates(patient, suitable))
    _drop(patient, module, (role,))
    return module.place()


def _drop(patient: Patient, module: StoredModule, roles: Sequence[str]) -> None:
    for role in roles:
        part = module.part(role)
        if part is None:
            raise NotApplicable(f"{module.name} has no {role}")
        patient.workspace.drop(part.name)
