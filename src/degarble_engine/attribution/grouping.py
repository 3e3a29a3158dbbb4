"""Suspects of one layer, one type or one norm are one finding: the smallest story that covers them.

six of seven linears of a layer     the layer; two such layers may have changed places
one type in most layers             one global finding; for q and k, GGUF's order of rotary rows is tried
all consumers of a norm alike       the norm
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from degarble_engine.attribution.ladder import STRUCTURAL, Suspect

LAYER_SHARE = 0.85
MIN_LAYER_LINEARS = 4
TYPE_SHARE = 0.6
MIN_TYPE_LAYERS = 3
SAME_DIRECTION = 0.9
"""Cosine of the outputs below which consumers hold other weights, as gate and up in each other's place."""
SAME_SLOPE = 0.02
"""Spread of the slopes of a norm's consumers that makes them one cause."""


@dataclass(slots=True, kw_only=True)
class Group:
    """One guilty component and the modules that show it."""

    kind: str
    """module | layer | type | norm | operator | tokens | embedding | head"""
    layer: int | None
    name: str
    """Relative module name, the type's name, or the norm's; '' for a layer."""
    suspects: list[Suspect] = field(default_factory=list)
    note: str = ""
    key: str | None = None
    """Of the config, for an operator."""
    value: float = 0.0
    bound: float = 0.0
    test: str = ""
    is_warning: bool = False
    score: float = 0.0
    planted_kl: float | None = None
    honest_kl: float | None = None
    restored_kl: float | None = None
    left_kl: float | None = None
    """KL after this and all more damaging components were restored."""

    @property
    def is_structural(self) -> bool:
        """Whether the evidence is more than size."""
        return self.test in STRUCTURAL


def grouped(
    suspects: Sequence[Suspect], linears: Mapping[int | None, int], consumers: Mapping[tuple[int, str], list[str]]
) -> list[Group]:
    """Join what belongs together. `linears`: how many were measured in each layer; `consumers`: of each norm."""
    errors = [one for one in suspects if not one.is_warning]
    left = {id(one): one for one in suspects}
    found: list[Group] = []
    for group in (*_layers(errors, linears), *_types(errors, left, len([n for n in linears if n is not None]))):
        members = [one for one in group.suspects if id(one) in left]
        if len(members) == len(group.suspects):
            found.append(group)
            for one in members:
                del left[id(one)]
    for group in _norms(list(left.values()), consumers):
        found.append(group)
        for one in group.suspects:
            left.pop(id(one), None)
    found += [_single(one) for one in left.values()]
    return sorted(found, key=lambda one: (one.is_warning, -one.score))


def _single(one: Suspect) -> Group:
    return _with_worst(Group(kind="module", layer=one.measures.layer, name=one.measures.name, suspects=[one]))


def _with_worst(group: Group) -> Group:
    worst = max(group.suspects, key=lambda one: one.score)
    group.test, group.value, group.bound, group.score = worst.test, worst.value, worst.bound, worst.score
    group.is_warning = all(one.is_warning for one in group.suspects)
    return group


def _layers(errors: Sequence[Suspect], linears: Mapping[int | None, int]) -> list[Group]:
    by_layer: defaultdict[int, list[Suspect]] = defaultdict(list)
    for one in errors:
        if one.measures.layer is not None:
            by_layer[one.measures.layer].append(one)
    return [
        _with_worst(Group(kind="layer", layer=layer, name="", suspects=members))
        for layer, members in by_layer.items()
        if linears[layer] >= MIN_LAYER_LINEARS and len(members) >= LAYER_SHARE * linears[layer]
    ]


def _types(errors: Sequence[Suspect], left: Mapping[int, Suspect], num_layers: int) -> list[Group]:
    by_kind: defaultdict[str, list[Suspect]] = defaultdict(list)
    for one in errors:
        by_kind[one.measures.kind].append(one)
    return [
        _with_worst(Group(kind="type", layer=None, name=kind, suspects=members))
        for kind, members in by_kind.items()
        if len({one.measures.layer for one in members}) >= max(MIN_TYPE_LAYERS, TYPE_SHARE * num_layers)
    ]


def _norms(suspects: Sequence[Suspect], consumers: Mapping[tuple[int, str], list[str]]) -> list[Group]:
    found = []
    for (layer, norm), names in consumers.items():
        members = [one for one in suspects if one.measures.layer == layer and one.measures.name in names]
        slopes = [one.measures.slope for one in members]
        if (
            len(names) > 1
            and len(members) == len(names)
            and max(slopes) - min(slopes) < SAME_SLOPE
            and abs(slopes[0] - 1) > SAME_SLOPE
            and min(one.measures.cosine for one in members) > SAME_DIRECTION
        ):
            found.append(_with_worst(Group(kind="norm", layer=layer, name=norm, suspects=members)))
    return found
