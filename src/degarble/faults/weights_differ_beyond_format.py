"""Plants WGT228."""

from __future__ import annotations

import numpy as np

from degarble.faults.interface import NotApplicable, Patient, fault
from degarble.faults.row_pairs_interleaved import move_rows
from degarble.faults.stored_values import has_codes, is_linear, overwrite, replace_values
from degarble.finding import Location
from degarble.formats.interface import StoredModule

FACTOR = 2.0
"""Below what is seen without a reference."""
SHIFT = 32
"""Smaller shifts look like another order inside words."""


@fault("WGT228", needs_reference=True)
def weights_differ_beyond_format(patient: Patient) -> Location:
    """Exchange two layers, norms and all."""
    modules = patient.modules(
        lambda one: one.layer is not None and one.payload is not None and one.canonical is not None
    )
    layers = sorted({one.layer for one in modules if one.layer is not None})
    if len(layers) < 2:
        raise NotApplicable("one layer")
    first = patient.pick(layers[:-1])
    second = layers[layers.index(first) + 1]
    pairs = _pairs(modules, first, second)
    for one, other in pairs:
        _exchange(patient, one, other)
    return patient.pick([one for one, _ in pairs if is_linear(one)]).place()


@fault("WGT228", needs_reference=True)
def module_of_another_layer(patient: Patient) -> Location:
    """Exchange one module with the next layer's."""
    modules = [one for one in patient.modules(is_linear) if one.part("global_scale") is None]
    module = patient.pick(one for one in modules if _next(one, modules) is not None)
    other = _next(module, modules)
    if other is not None:
        _exchange(patient, module, other)
    return module.place()


@fault("WGT228", needs_reference=True)
def module_scaled(patient: Patient) -> Location:
    """Multiply one weight by two."""
    module = patient.pick(
        one for one in patient.modules(is_linear) if len(one.form.shape or ()) == 2 and _has_scales(one)
    )
    if module.form.is_quantized:
        replace_values(patient, module, scales=module.scales() * np.float32(FACTOR))
    else:
        replace_values(patient, module, codes=module.dequantize() * FACTOR)
    return module.place()


@fault("WGT228", needs_reference=True)
def rows_shifted(patient: Patient) -> Location:
    """Move every row of one down_proj or o_proj 32 places on."""
    module = patient.pick(one for one in patient.modules(is_linear) if one.name.endswith(("down_proj", "o_proj")))
    move_rows(patient, module, lambda table: np.roll(table, SHIFT, axis=0))
    return module.place()


def _has_scales(module: StoredModule) -> bool:
    scheme = module.form.scheme
    if (module.payload is None or module.payload.dtype.startswith("GGUF")) or module.form.format == "gguf":
        return False
    few = scheme is not None and scheme.type == "float" and scheme.num_bits == 4
    return not module.form.is_quantized or (has_codes(module) and not few)


def _headers(module: StoredModule) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {suffix: (info.dtype, info.shape) for suffix, info in module.parts.items()}


def _next(module: StoredModule, modules: list[StoredModule]) -> StoredModule | None:
    place = (module.template, (module.layer or 0) + 1, module.expert)
    found = next((one for one in modules if (one.template, one.layer, one.expert) == place), None)
    return found if found is not None and _headers(found) == _headers(module) else None


def _pairs(modules: list[StoredModule], first: int, second: int) -> list[tuple[StoredModule, StoredModule]]:
    by_place = {(one.template, one.expert): one for one in modules if one.layer == second}
    found = []
    for one in modules:
        if one.layer != first:
            continue
        other = by_place.get((one.template, one.expert))
        if other is None or _headers(one) != _headers(other):
            raise NotApplicable("the layers are not alike")
        found.append((one, other))
    return found


def _exchange(patient: Patient, one: StoredModule, other: StoredModule) -> None:
    for suffix, info in one.parts.items():
        first, second = one.reader.raw(info).copy(), other.reader.raw(other.parts[suffix]).copy()
        overwrite(patient, info, second)
        overwrite(patient, other.parts[suffix], first)
