"""Which parameters a layer's stacks of experts are: every assignment that shapes allow, and what names say to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import msgspec

from degarble.architectures.interface import Architecture, ParameterTemplate
from degarble.evidence.parameters import module_template
from degarble.fixes.expert_stacks import ExpertStack, Share
from degarble.formats.scheme import Scheme

MEANINGS: Mapping[str, frozenset[str]] = {
    "gate": frozenset({"gate"}),
    "up": frozenset({"up"}),
    "down": frozenset({"down"}),
    "w1": frozenset({"gate"}),
    "w3": frozenset({"up"}),
    "w2": frozenset({"down"}),
    "w13": frozenset({"gate", "up"}),
    "gateup": frozenset({"gate", "up"}),
}
"""Words in names of expert matrices. `w1`, `w2`, `w3` are Llama's own names, kept by Mixtral."""

WORD = re.compile(r"[a-z]+\d*")


class Seating(msgspec.Struct, frozen=True):
    """One way to take the stacks: the parameters of each, in order of their rows."""

    seats: tuple[tuple[ParameterTemplate, ...], ...]
    stacks: tuple[ExpertStack, ...]

    @property
    def fits_names(self) -> bool:
        """Whether every stack whose name says something is what it says."""
        pairs = zip(self.stacks, self.seats, strict=True)
        return all(meaning(stack.stem) in (frozenset(), _meant(seats)) for stack, seats in pairs)


def single_templates(architecture: Architecture, layer: int) -> list[ParameterTemplate]:
    """Parameters of which every expert of a layer has one."""
    return [t for t in _of_layer(architecture, layer) if t.experts is not None and len(t.shape) == 2]


def fused_templates(architecture: Architecture, layer: int) -> list[ParameterTemplate]:
    """Parameters that hold all experts of a layer at once."""
    groups = {t.group for t in single_templates(architecture, layer)}
    return [t for t in _of_layer(architecture, layer) if t.group in groups and t.experts is None and len(t.shape) == 3]


def fused_seatings(stacks: Sequence[ExpertStack], templates: Sequence[ParameterTemplate]) -> list[Seating]:
    """Stacks under the fused parameters' names: plain ones of exactly their shapes."""
    if any(stack.format.name != "plain" for stack in stacks):
        return []
    options = [[(t,) for t in templates if stack.parts["weight"].shape == t.shape] for stack in stacks]
    return _covering(stacks, options, templates)


def single_seatings(
    stacks: Sequence[ExpertStack],
    templates: Sequence[ParameterTemplate],
    pair: tuple[ParameterTemplate, ...],
    schemes: Mapping[str, Scheme | None],
) -> list[Seating]:
    """Stacks cut into one matrix for each expert; a stack may hold the two of `pair`, the first above the second."""
    choices = [*((t,) for t in templates), *([pair] if pair else [])]
    options = [[seats for seats in choices if _fits(stack, seats, schemes)] for stack in stacks]
    return _covering(stacks, options, templates)


def pair_of(architecture: Architecture, templates: Sequence[ParameterTemplate]) -> tuple[ParameterTemplate, ...]:
    """The two that engines put into one matrix, in their order; empty if the family has none."""
    by_end = {t.name.rpartition("{layer}.")[2].removesuffix(".weight"): t for t in templates}
    for group in architecture.fused_groups:
        if len(group) == 2 and all(name in by_end for name in group):
            return tuple(by_end[name] for name in group)
    return ()


def meaning(name: str) -> frozenset[str]:
    """What the last part of a name says: gate, up, down, or gate and up; nothing if it says none."""
    parts = [MEANINGS.get(word, frozenset()) for word in WORD.findall(name.rpartition(".")[2].lower())]
    return frozenset().union(*parts)


def _meant(seats: Sequence[ParameterTemplate]) -> frozenset[str]:
    return frozenset().union(*(meaning(module_template(t.name)) for t in seats))


def _of_layer(architecture: Architecture, layer: int) -> Iterator[ParameterTemplate]:
    return (t for t in architecture.templates if t.needed and t.layers is not None and layer in t.layers)


def _fits(stack: ExpertStack, seats: Sequence[ParameterTemplate], schemes: Mapping[str, Scheme | None]) -> bool:
    """Whether headers of one expert's share are what the format stores for the parameter."""
    halves = (None,) if len(seats) == 1 else (0, 1)
    if len(seats) == 2 and not stack.can_halve():
        return False
    for half, seat in zip(halves, seats, strict=True):
        parts = stack.headers(Share(0, half))
        payload = parts[stack.format.suffix_of("payload")]
        if len(payload.shape) != 2:
            return False
        form = stack.format.form(parts, schemes[seat.name], seat.shape)
        if form.shape != seat.shape or form.missing or form.contradictions:
            return False
    return True


def _covering(
    stacks: Sequence[ExpertStack],
    options: Sequence[Sequence[tuple[ParameterTemplate, ...]]],
    templates: Sequence[ParameterTemplate],
) -> list[Seating]:
    """Every choice of options in which each parameter is filled exactly once."""
    wanted = sorted(t.name for t in templates)
    if not wanted or len(stacks) > len(wanted):
        return []
    return [
        Seating(choice, tuple(stacks))
        for choice in product(*options)
        if sorted(t.name for seats in choice for t in seats) == wanted
    ]
