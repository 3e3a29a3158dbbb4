"""Plants WGT204."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import JUDGED, is_linear, overwrite, replace_values
from degarble.finding import Location
from degarble.formats.interface import PAYLOAD, StoredModule


@fault("WGT204")
def payload_constant(patient: Patient) -> Location:
    """Fill one matrix with zeros, whatever that means in its format."""
    module = patient.pick(_matrices(patient))
    overwrite(patient, module.any_part, np.zeros(module.any_part.nbytes, np.uint8))
    return module.place()


@fault("WGT204")
def payload_constant_word(patient: Patient) -> Location:
    """Fill the packed codes of one module with 0x88, which is zero in symmetric INT4."""
    module = patient.pick(_matrices(patient, lambda m: m.form.is_quantized and m.any_part.dtype in ("I32", "U8")))
    overwrite(patient, module.any_part, np.full(module.any_part.nbytes, 0x88, np.uint8))
    return module.place()


@fault("WGT204")
def payload_at_zero_point(patient: Patient) -> Location:
    """Set every code of one module to its own zero point."""
    module = patient.pick(_matrices(patient, lambda m: "zero_point" in m.form.roles and m.form.is_quantized))
    zeros, index = module.zeros(), module.group_index()
    if zeros is None or index is None:
        raise NotApplicable("no zero points by group")
    replace_values(patient, module, codes=zeros[:, index].astype(module.codes().dtype))
    return module.place()


@fault("WGT204")
def payload_constant_in_one_expert(patient: Patient) -> Location:
    """Fill one expert's matrix with zeros."""
    fused = _fused(patient)
    if not fused or patient.rng.random() < 0.5:
        module = patient.pick(_matrices(patient, lambda m: m.expert is not None))
        overwrite(patient, module.any_part, np.zeros(module.any_part.nbytes, np.uint8))
        return module.place()
    module = patient.pick(fused)
    raw = module.reader.raw(module.any_part).copy().reshape((module.form.shape or (1,))[0], -1)
    expert = patient.rng.randrange(len(raw))
    raw[expert] = 0
    overwrite(patient, module.any_part, raw)
    return replace(module.place(), expert=expert)


@fault("WGT204")
def payload_constant_in_one_layer(patient: Patient) -> Location:
    """Fill every linear of one layer with zeros."""
    layers = {m.layer for m in patient.modules(is_linear)}
    layer = patient.pick(sorted(layer for layer in layers if layer is not None))
    members = patient.modules(lambda m: is_linear(m) and m.layer == layer)
    for module in members:
        overwrite(patient, module.any_part, np.zeros(module.any_part.nbytes, np.uint8))
    return members[0].place()


@fault("WGT204")
def router_zero(patient: Patient) -> Location:
    """Fill one router with zeros."""
    module = patient.pick(_matrices(patient, lambda m: m.kind == "router"))
    overwrite(patient, module.any_part, np.zeros(module.any_part.nbytes, np.uint8))
    return module.place()


@fault("WGT204")
def head_or_embedding_zero(patient: Patient) -> Location:
    """Fill the embedding or the head with zeros."""
    module = patient.pick(_matrices(patient, lambda m: m.kind in ("head", "embedding")))
    overwrite(patient, module.any_part, np.zeros(module.any_part.nbytes, np.uint8))
    return module.place()


def _fused(patient: Patient) -> list[StoredModule]:
    inventory = patient.evidence.find("modules")
    members = inventory.values() if inventory is not None else ()
    return [m for m in members if m.kind in JUDGED and m.payload is not None and len(m.form.shape or ()) == 3]


def _matrices(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> list[StoredModule]:
    return patient.modules(
        lambda m: m.kind in JUDGED and PAYLOAD in m.form.roles and len(m.form.shape or ()) >= 2 and suitable(m)
    )
