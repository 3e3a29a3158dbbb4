"""Evidence about parameters: what the architecture needs and the disk lacks, and what the disk has and nobody needs.

A parameter counts as present if any part of its module is stored, since a payload without its scale is another rule's
business. Alternatives (experts one by one, or fused) are settled in each layer on its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product

import msgspec

from degarble.architectures.interface import Architecture, ParameterTemplate
from degarble.errors import EvidenceMissing
from degarble.evidence.modules import Modules
from degarble.evidence.store import provides
from degarble.evidence.weights import Shard
from degarble.formats.interface import StoredModule

Position = tuple[int | None, int | None]
"""Layer and expert."""
Home = tuple[frozenset[int] | None, int | None]
"""Layers and number of experts that a template stands for; None where it has no such place."""

DECODER = "model.layers.{layer}."
HEAD = "lm_head"
ADAPTER_MARKS = ("adapter_model", "pytorch_lora")


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """One needed parameter, and where it is not."""

    template: ParameterTemplate
    positions: tuple[Position, ...]

    @property
    def module(self) -> str:
        """Template of the module that holds it."""
        return module_template(self.template.name)

    @property
    def is_bias(self) -> bool:
        """Whether the module may be there without it."""
        return self.template.name.endswith(".bias")


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Modules of one template that no parameter of the architecture has, or their biases."""

    template: str
    members: tuple[StoredModule, ...]
    is_bias: bool = False


class Parameters(msgspec.Struct, frozen=True, kw_only=True):
    """The architecture's parameter list against the disk."""

    architecture: Architecture
    present: Mapping[str, frozenset[Position]]
    """Module template -> where any part of it is stored; `.bias` templates for biases."""
    missing: tuple[Missing, ...]
    """Needed and absent, in layers that are there; the head is not among them."""
    head: Missing | None
    """The output head, if it is needed and absent."""
    unknown: tuple[Unknown, ...]
    layers: frozenset[int]
    """Decoder layers of which anything is stored."""


@provides("parameters")
def parameters(modules: Modules, architecture: Architecture, shards: Mapping[str, Shard]) -> Parameters:
    """Compare once for all checks."""
    if all(name.startswith(ADAPTER_MARKS) for name in shards):
        raise EvidenceMissing("an adapter alone is no model")
    return compare(modules, architecture)


def compare(modules: Modules, architecture: Architecture) -> Parameters:
    """What one parameter list misses on this disk, and what it does not know of it."""
    present = _present(modules)
    decoder = [found for name, found in present.items() if name.startswith(DECODER)]
    layers = frozenset(layer for found in decoder for layer, _ in found if layer is not None)
    unknown = tuple(_unknown(modules, architecture))
    absent = {
        template.name: found
        for template in architecture.templates
        if template.needed and (found := _absent(template, present, layers))
    }
    missing = tuple(_settled(architecture, absent, present, unknown))
    return Parameters(
        architecture=architecture,
        present={name: frozenset(found) for name, found in present.items()},
        missing=tuple(item for item in missing if item.module != HEAD),
        head=next((item for item in missing if item.module == HEAD), None),
        unknown=unknown,
        layers=layers,
    )


def is_expert_stack(module: StoredModule) -> bool:
    """Whether the name speaks of a layer's routed experts, and of no single one."""
    return module.expert is None and "expert" in module.template and "shared_expert" not in module.template


def module_template(parameter: str) -> str:
    """`….q_proj.weight` and `….q_proj.bias` belong to the module `….q_proj`; a bare parameter is its own module."""
    return parameter.removesuffix(".weight").removesuffix(".bias")


def _key(parameter: str) -> str:
    return parameter.removesuffix(".weight")


def _present(modules: Modules) -> dict[str, set[Position]]:
    present: dict[str, set[Position]] = {}
    for example, members in modules.classes():
        if example.canonical is None:
            continue
        positions = [(module.layer, module.expert) for module in members]
        has_bias = "bias" in example.form.roles
        if has_bias:
            present.setdefault(f"{example.template}.bias", set()).update(positions)
        if not has_bias or len(example.parts) > 1:
            present.setdefault(example.template, set()).update(positions)
    return present


def _absent(
    template: ParameterTemplate, present: Mapping[str, set[Position]], layers: frozenset[int]
) -> tuple[Position, ...]:
    """Positions without the parameter; layers of which nothing is there are not counted."""
    there = present.get(_key(template.name), set())
    wanted = (None,) if template.layers is None else tuple(layer for layer in template.layers if layer in layers)
    experts: Iterable[int | None] = (None,) if template.experts is None else range(template.experts)
    places = product(wanted, experts)
    if there.issuperset(places):
        return ()
    return tuple(place for place in product(wanted, experts) if place not in there)


def _settled(
    architecture: Architecture,
    absent: Mapping[str, tuple[Position, ...]],
    present: Mapping[str, set[Position]],
    unknown: tuple[Unknown, ...],
) -> Iterator[Missing]:
    """What is missing once alternatives are settled."""
    groups: dict[str, dict[str, list[ParameterTemplate]]] = {}
    for template in architecture.templates:
        if not template.needed:
            continue
        if template.group is None:
            if template.name in absent:
                yield Missing(template=template, positions=absent[template.name])
            continue
        groups.setdefault(template.group, {}).setdefault(str(template.variant), []).append(template)
    for variants in groups.values():
        yield from _settled_group(variants, absent, present, unknown)


def _settled_group(
    variants: Mapping[str, list[ParameterTemplate]],
    absent: Mapping[str, tuple[Position, ...]],
    present: Mapping[str, set[Position]],
    unknown: tuple[Unknown, ...],
) -> Iterator[Missing]:
    by_layer = {
        template.name: _by_layer(absent.get(template.name, ())) for members in variants.values() for template in members
    }
    layers = {layer for members in variants.values() for t in members for layer in by_layer[t.name]}
    blamed: dict[str, tuple[ParameterTemplate, list[Position]]] = {}
    for layer in sorted(layers, key=lambda number: -1 if number is None else number):
        offered = {
            name: [t for t in members if t.layers is None or layer in t.layers] for name, members in variants.items()
        }
        if any(members and not any(layer in by_layer[t.name] for t in members) for members in offered.values()):
            continue
        closest = max(
            (members for members in offered.values() if members),
            key=lambda members: _evidence_for(members, layer, present, unknown),
        )
        for template in closest:
            lost = by_layer[template.name].get(layer, [])
            blamed.setdefault(template.name, (template, []))[1].extend(lost)
    yield from (Missing(template=t, positions=tuple(lost)) for t, lost in blamed.values() if lost)


def _by_layer(positions: tuple[Position, ...]) -> dict[int | None, list[Position]]:
    found: dict[int | None, list[Position]] = {}
    for position in positions:
        found.setdefault(position[0], []).append(position)
    return found


def _evidence_for(
    members: list[ParameterTemplate],
    layer: int | None,
    present: Mapping[str, set[Position]],
    unknown: tuple[Unknown, ...],
) -> tuple[int, int]:
    """How much of a variant is there; then how many unknown names look like its members with something appended."""
    stored = sum(1 for template in members if any(found == layer for found, _ in present.get(_key(template.name), ())))
    alike = sum(item.template.startswith(module_template(t.name) + "_") for item in unknown for t in members)
    return stored, alike


def _unknown(modules: Modules, architecture: Architecture) -> Iterator[Unknown]:
    """Modules that match nothing. Where a name has templates for some layers only, each member is asked for."""
    names = {template.name for template in architecture.templates}
    everywhere = {t.name for t in architecture.templates if t.layers is None and t.experts is None}
    ranges = _ranges(architecture)
    for example, members in modules.classes():
        if example.canonical is None:
            continue
        spellings = (f"{example.template}.weight", example.template)
        if not any(spelling in everywhere for spelling in spellings):
            known = [spelling for spelling in spellings if spelling in names]
            homes = [home for spelling in known for home in ranges[spelling]]
            strange = [] if _hold_all(homes, members) else _homeless(members, homes)
            if strange and not _is_bias_alone(example, names):
                yield Unknown(template=example.template, members=tuple(strange))
        bias = f"{example.template}.bias"
        if "bias" in example.form.roles and bias not in names and (set(spellings) & names):
            yield Unknown(template=bias, members=tuple(members), is_bias=True)


def _is_bias_alone(example: StoredModule, names: set[str]) -> bool:
    return set(example.form.roles) == {"bias"} and f"{example.template}.bias" in names


def _ranges(architecture: Architecture) -> dict[str, list[Home]]:
    """Template name -> the layers and the number of experts it stands for."""
    found: dict[str, list[Home]] = {}
    for template in architecture.templates:
        layers = None if template.layers is None else frozenset(template.layers)
        found.setdefault(template.name, []).append((layers, template.experts))
    return found


def _hold_all(homes: list[Home], members: list[StoredModule]) -> bool:
    """The usual case: homes that have room for every expert cover every layer."""
    numbers = {module.expert for module in members}
    roomy = [
        layers
        for layers, experts in homes
        if experts is None or all(type(number) is int and number < experts for number in numbers)
    ]
    return None in roomy or {module.layer for module in members} <= frozenset().union(*filter(None, roomy))


def _homeless(members: list[StoredModule], homes: list[Home]) -> list[StoredModule]:
    return [module for module in members if not any(_is_in(module, *home) for home in homes)]


def _is_in(module: StoredModule, layers: frozenset[int] | None, experts: int | None) -> bool:
    if layers is not None and module.layer not in layers:
        return False
    return experts is None or (module.expert is not None and module.expert < experts)
