"""Plants WGT221."""

from __future__ import annotations

from collections.abc import Sequence

from degarble.evidence.block_look import BlockLook
from degarble.evidence.modules import Modules
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.profile.layer import JointProfile

TELLING = {"k": 2.0, "gate": 8.0}
"""How clearly a healthy layer must tell the two apart: weights without training do not."""


@fault("WGT221")
def module_exchanged(patient: Patient) -> Location:
    """Exchange k_proj and v_proj of one layer."""
    pair = patient.pick(_pairs(patient, ("k", "v")))
    _exchange(patient, *pair)
    return pair[0].place()


@fault("WGT221")
def gate_and_up_exchanged(patient: Patient) -> Location:
    """Exchange gate_proj and up_proj of one layer or expert."""
    pair = patient.pick(_pairs(patient, ("gate", "up")))
    _exchange(patient, *pair)
    return pair[0].place()


@fault("WGT221")
def gate_and_up_exchanged_everywhere(patient: Patient) -> Location:
    """Exchange gate_proj and up_proj in every layer that tells."""
    pairs = _pairs(patient, ("gate", "up"))
    for pair in pairs:
        _exchange(patient, *pair)
    return patient.pick(pairs)[0].place()


def _pairs(patient: Patient, parts: tuple[str, str]) -> list[tuple[StoredModule, StoredModule]]:
    modules: Modules = patient.evidence.get("modules")
    look: BlockLook = patient.evidence.get("block_look")
    profiles: Sequence[JointProfile] = patient.evidence.find("joint") or ()
    found = [
        (modules[profile.modules[parts[0]]], modules[profile.modules[parts[1]]])
        for profile in profiles
        if all(part in profile.modules for part in parts) and _tells(profile, look, parts[0])
    ]
    same = [(one, other) for one, other in found if _headers(one) == _headers(other)]
    if not same:
        raise NotApplicable("no two modules that could be told apart")
    return same


def _tells(profile: JointProfile, look: BlockLook, part: str) -> bool:
    sampled = profile.key_value if part == "k" else profile.gate_up
    if sampled is None or sampled < 1:
        return False
    whole = look.whole(profile)
    value = None if whole is None else whole.key_value if part == "k" else whole.gate_up
    return value is not None and value > TELLING[part]


def _headers(module: StoredModule) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {suffix: (info.dtype, info.shape) for suffix, info in module.parts.items()}


def _exchange(patient: Patient, one: StoredModule, other: StoredModule) -> None:
    raw = {
        name: (one.reader.raw(one.parts[name]).copy(), other.reader.raw(other.parts[name]).copy()) for name in one.parts
    }
    for name, (first, second) in raw.items():
        overwrite(patient, one.parts[name], second)
        overwrite(patient, other.parts[name], first)
