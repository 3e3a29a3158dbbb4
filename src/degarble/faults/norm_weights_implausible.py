"""Plants WGT217."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.evidence.layer_series import MIN_LAYERS
from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.stored_values import overwrite
from degarble.finding import Location
from degarble.formats.interface import StoredModule

PLAIN = {"GGUF:F32": "<f4", "GGUF:F16": "<f2"}


@fault("WGT217")
def norm_weights_implausible(patient: Patient) -> Location:
    """Subtract 1 from every norm of the decoder, as a converter with the other convention does."""
    norms = _norms(patient, lambda m: m.layer is not None)
    if _adds_one(patient):
        raise NotApplicable("norms of this family multiply by 1 + w")
    for module in norms:
        _change(patient, module, lambda array: array - 1)
    return norms[0].place()


@fault("WGT217")
def norm_minus_one_in_one_layer(patient: Patient) -> Location:
    """Subtract 1 from one norm."""
    if _adds_one(patient):
        raise NotApplicable("norms of this family multiply by 1 + w")
    module = patient.pick(_norms(patient, lambda m: m.layer is not None))
    _change(patient, module, lambda array: array - 1)
    return module.place()


@fault("WGT217")
def norm_zero(patient: Patient) -> Location:
    """Fill one norm with zeros."""
    if _adds_one(patient):
        raise NotApplicable("norms of this family multiply by 1 + w")
    module = patient.pick(_norms(patient))
    _change(patient, module, lambda array: array * 0)
    return module.place()


@fault("WGT217")
def norm_partly_zero(patient: Patient) -> Location:
    """Set a quarter of one norm to zero."""
    if _adds_one(patient):
        raise NotApplicable("norms of this family multiply by 1 + w")
    module = patient.pick(_norms(patient))
    _change(patient, module, lambda array: np.where(np.arange(array.size) < array.size // 4, 0, array))
    return module.place()


@fault("WGT217")
def norm_plus_one_in_one_layer(patient: Patient) -> Location:
    """Add 1 twice to one norm of a model with enough layers to compare."""
    return _one_of_many(patient, lambda array: array + 1)


@fault("WGT217")
def norm_shrunk_in_one_layer(patient: Patient) -> Location:
    """Divide one norm by 16 and leave the linear behind it, as half a fold does."""
    return _one_of_many(patient, lambda array: array / 16)


def _one_of_many(patient: Patient, change: Callable[[Array], Array]) -> Location:
    norms = _norms(patient, lambda m: (m.canonical or "").endswith(("input_layernorm", "post_attention_layernorm")))
    if len({m.layer for m in norms}) < MIN_LAYERS or _adds_one(patient):
        raise NotApplicable(f"fewer than {MIN_LAYERS} layers, or norms that multiply by 1 + w")
    module = patient.pick(m for m in norms if m.layer)
    before = [_values(m) for m in norms if m.template == module.template and m is not module]
    usual = float(np.median([np.sqrt(np.mean(np.square(array))) for array in before]))
    after = np.sqrt(np.mean(np.square(change(_values(module)))))
    if abs(np.log(after / usual)) < 1.2:
        raise NotApplicable("norms so large that the change is within their spread")
    _change(patient, module, change)
    return module.place()


def _norms(patient: Patient, suitable: Callable[[StoredModule], bool] = lambda m: True) -> list[StoredModule]:
    """Trained norms of the text model."""
    found = patient.modules(lambda m: m.kind == "norm" and m.payload is not None and suitable(m))
    trained = [module for module in found if np.ptp(_values(module)) > 0]
    if not trained:
        raise NotApplicable("untrained norms")
    return trained


def _adds_one(patient: Patient) -> bool:
    architecture = patient.evidence.find("architecture")
    return architecture is not None and bool(architecture.norm_convention == "1+w")


def _stored(module: StoredModule) -> Array:
    info = module.any_part
    if info.dtype in PLAIN:
        return module.reader.raw(info).view(PLAIN[info.dtype])
    return module.reader.read(info)


def _values(module: StoredModule) -> Array:
    return _stored(module).astype(np.float64)


def _change(patient: Patient, module: StoredModule, change: Callable[[Array], Array]) -> None:
    overwrite(patient, module.any_part, change(_values(module)).astype(_stored(module).dtype))
