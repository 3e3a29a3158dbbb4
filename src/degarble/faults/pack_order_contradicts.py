"""Plants WGT209."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.declared_key import declared_key
from degarble.evidence.pack_orders import packs_outputs
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule
from degarble.profile.joint import ORDERS, WIDE_ORDERS
from degarble.profile.layer import JointProfile

MIN_ALIGNMENT = 4.0
"""In untrained weights, and in most of layer 0, nobody could tell."""
PACKED_BITS = 4
MIN_LAYERS = 4
PARTS = ("v", "o", "up", "gate", "down")


@fault("WGT209")
def pack_order_contradicts(patient: Patient) -> Location:
    """Pack one module in AWQ's order where natural order is expected, or the other way round."""
    module = patient.pick(_tellable(patient))
    _reorder(patient, [module], ORDERS["awq"])
    return module.place()


@fault("WGT209")
def nibbles_reversed(patient: Patient) -> Location:
    """Pack the codes of one module from the high end of each word."""
    module = patient.pick(_tellable(patient))
    _reorder(patient, [module], ORDERS["reversed"])
    return module.place()


@fault("WGT209")
def nibbles_swapped(patient: Patient) -> Location:
    """Exchange the two codes of every byte of one module."""
    module = patient.pick(_tellable(patient))
    _reorder(patient, [module], ORDERS["pairs-swapped"])
    return module.place()


@fault("WGT209")
def block_halves_interleaved(patient: Patient) -> Location:
    """Put neighbours into the two halves of a GGUF block that are 16 codes apart."""
    module = patient.pick(one for one in _tellable(patient) if one.form.format == "gguf")
    _reorder(patient, [module], WIDE_ORDERS["halves-interleaved"])
    return module.place()


@fault("WGT209")
def pack_order_of_a_layer(patient: Patient) -> Location:
    """Pack all modules of one layer in AWQ's order, or the other way round."""
    module = patient.pick(_tellable(patient))
    linears = patient.modules(lambda one: _is_packed(one) and one.layer == module.layer and one.expert == module.expert)
    _reorder(patient, linears, ORDERS["awq"])
    return Location(layer=module.layer)


@fault("WGT209")
def pack_order_everywhere(patient: Patient) -> Location:
    """Pack every module in AWQ's order, or the other way round."""
    tellable = _tellable(patient)
    if len({one.layer for one in tellable}) < MIN_LAYERS:
        raise NotApplicable(f"fewer than {MIN_LAYERS} layers that tell")
    module = patient.pick(tellable)
    declaration = patient.evidence.find("declaration")
    _reorder(patient, patient.modules(_is_packed), ORDERS["awq"])
    if declaration is None:
        return Location(file=module.place().file)
    return Location(file=declaration.file, key=declared_key(declaration, module.name, "label"))


def _tellable(patient: Patient) -> list[StoredModule]:
    """Packed modules whose partner in the layer is clearly related to them."""
    profiles: Sequence[JointProfile] = patient.evidence.find("joint") or ()
    names = {
        name
        for profile in profiles
        for pair in profile.pairs
        if pair.stored > MIN_ALIGNMENT
        for name in (pair.left, pair.right)
        if any(profile.modules.get(part) == name for part in PARTS)
    }
    found = patient.modules(lambda one: one.name in names and _is_packed(one))
    return found


def _is_packed(module: StoredModule) -> bool:
    scheme, shape = module.form.scheme, module.form.shape
    if module.kind != "linear" or scheme is None or scheme.num_bits != PACKED_BITS or shape is None or len(shape) != 2:
        return False
    is_known = scheme.type in ("int", "float") and (module.form.format != "gguf" or scheme.format == "Q4_0")
    return is_known and shape[0] % 32 == 0 and shape[1] % 32 == 0


def _reorder(patient: Patient, modules: Sequence[StoredModule], order: Sequence[int]) -> None:
    """Codes, and zero points that are packed like them, inside every word; scales stay."""
    for module in modules:
        codes = module.codes()
        zeros = module.zeros() if module.part("zero_point") is not None else None
        if not packs_outputs(module):
            replace_values(patient, module, codes=_permuted(codes.T, order).T)
        elif zeros is None:
            replace_values(patient, module, codes=_permuted(codes, order))
        else:
            replace_values(patient, module, codes=_permuted(codes, order), zeros=_permuted(zeros, order))
    if not modules:
        raise NotApplicable("no packed module")


def _permuted(values: Array, order: Sequence[int]) -> Array:
    grouped = values.reshape(-1, len(order), values.shape[1])
    return np.ascontiguousarray(grouped[:, list(order)].reshape(values.shape))
