"""Evidence about bit-identical weights: which layers, experts and modules are copies of each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from degarble.checkpoint.tensor_data import Array, TensorReader
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.formats.interface import StoredModule
from degarble.profile.duplicates import equal_tensors
from degarble.profile.tensor_profile import TensorProfile

MIN_BYTES = 512
"""Smaller payloads may be equal by chance or by design."""
HEAD_BYTES = 256


class Twins(msgspec.Struct, frozen=True):
    """Copies, each with the module or number it repeats; a copy is the later one."""

    layers: Mapping[int, int]
    """Layer -> the earlier layer all of whose linears it repeats."""
    experts: Mapping[tuple[int, int], int]
    """(layer, expert) -> the earlier expert of that layer all of whose linears it repeats."""
    num_experts: Mapping[int, int]
    modules: tuple[tuple[StoredModule, StoredModule], ...]
    """(copy, original) where neither a whole layer nor a whole expert is a copy."""
    slices: tuple[tuple[StoredModule, int, int, int], ...]
    """(fused module, expert, earlier expert, number of experts)."""
    by_layer: Mapping[int, tuple[StoredModule, ...]]
    """Linears of each layer that has a twin or an expert with one."""


@provides("twins")
def twins(modules: Modules, profiles: Mapping[str, TensorProfile], reader: TensorReader) -> Twins:
    """Compare the payloads of all linears and routers of the text model."""
    judged = [module for module in modules.values() if _is_judged(module)]
    by_name = {module.any_part.name: module for module in judged}
    infos = [module.any_part for module in judged]
    groups = [[by_name[name] for name in group] for group in equal_tensors(infos, profiles, reader)]
    by_layer: dict[int, list[StoredModule]] = {}
    for module in judged:
        if module.layer is not None:
            by_layer.setdefault(module.layer, []).append(module)
    layers = _layers(groups, by_layer)
    experts = _experts(groups, by_layer)
    singles = tuple(pair for pair in _pairs(groups) if not _is_covered(pair, layers, experts))
    counts = {layer: len({m.expert for m in members if m.expert is not None}) for layer, members in by_layer.items()}
    return Twins(
        layers=layers,
        experts=experts,
        num_experts=counts,
        modules=singles,
        slices=tuple(_slices(judged)),
        by_layer={layer: tuple(members) for layer, members in by_layer.items()},
    )


def _is_judged(module: StoredModule) -> bool:
    payload = module.payload
    return (
        module.kind in ("linear", "router")
        and module.canonical is not None
        and payload is not None
        and payload.nbytes >= MIN_BYTES
        and len(module.form.shape or payload.shape) > 1
    )


def _layers(groups: list[list[StoredModule]], by_layer: Mapping[int, list[StoredModule]]) -> dict[int, int]:
    """Layers whose every linear has an equal of the same name in one earlier layer."""
    hits: dict[tuple[int, int], int] = {}
    for group in groups:
        named: dict[tuple[str, int | None], list[int]] = {}
        for module in group:
            if module.layer is not None:
                named.setdefault((module.template, module.expert), []).append(module.layer)
        for numbers in named.values():
            first, *rest = sorted(numbers)
            for later in rest:
                hits[later, first] = hits.get((later, first), 0) + 1
    return {
        later: first for (later, first), count in hits.items() if count == len(by_layer[later]) == len(by_layer[first])
    }


def _experts(
    groups: list[list[StoredModule]], by_layer: Mapping[int, list[StoredModule]]
) -> dict[tuple[int, int], int]:
    """Experts whose every linear has an equal in one earlier expert of the layer."""
    sizes: dict[tuple[int, int], int] = {}
    for layer, members in by_layer.items():
        for module in members:
            if module.expert is not None:
                sizes[layer, module.expert] = sizes.get((layer, module.expert), 0) + 1
    hits: dict[tuple[int, int, int], int] = {}
    for group in groups:
        named: dict[tuple[str, int], list[int]] = {}
        for module in group:
            if module.layer is not None and module.expert is not None:
                named.setdefault((module.template, module.layer), []).append(module.expert)
        for (_, layer), numbers in named.items():
            first, *rest = sorted(numbers)
            for later in rest:
                hits[layer, later, first] = hits.get((layer, later, first), 0) + 1
    return {(layer, later): first for (layer, later, first), count in hits.items() if count == sizes[layer, later]}


def _pairs(groups: list[list[StoredModule]]) -> Iterator[tuple[StoredModule, StoredModule]]:
    for group in groups:
        yield from ((module, group[0]) for module in group[1:])


def _is_covered(
    pair: tuple[StoredModule, StoredModule], layers: Mapping[int, int], experts: Mapping[tuple[int, int], int]
) -> bool:
    """Whether a copy of a whole layer or expert says it already."""
    return any(m.layer in layers or (m.layer is not None and (m.layer, m.expert) in experts) for m in pair)


def _slices(judged: list[StoredModule]) -> Iterator[tuple[StoredModule, int, int, int]]:
    """Experts inside fused tensors."""
    for module in judged:
        shape, payload = module.form.shape or (), module.any_part
        if len(shape) != 3 or shape[0] < 2 or payload.nbytes % shape[0]:
            continue
        rows = module.reader.raw(payload).reshape(shape[0], -1)
        seen: dict[bytes, int] = {}
        for expert in range(shape[0]):
            head = rows[expert, :HEAD_BYTES].tobytes()
            first = seen.setdefault(head, expert)
            if first != expert and _varies(rows[expert]) and bool((rows[first] == rows[expert]).all()):
                yield module, expert, first, shape[0]


def _varies(row: Array) -> bool:
    return bool((row[1:] != row[0]).any())
