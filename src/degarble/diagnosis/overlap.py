"""Whether two findings speak of the same place, at the finest grain that both of them name."""

from __future__ import annotations

from dataclasses import dataclass

from degarble.finding import Finding, Location

CONFIG_SUFFIXES = (".json", ".yaml", ".toml")
"""A finding in a config file that names no module concerns the whole target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """The places of one (folded) finding, by grain."""

    modules: frozenset[str]
    layers: frozenset[int]
    files: frozenset[str]
    requests: frozenset[str]
    blocks: frozenset[int]
    whole: bool
    rank: int
    """0 the whole target, 1 a file, 2 a layer, 3 a module, 4 an element."""

    @property
    def named(self) -> frozenset[str | int]:
        """Requests and blocks: who is concerned in a trace."""
        return self.requests | self.blocks

    @classmethod
    def of(cls, finding: Finding) -> Extent:
        """Collect the places of a finding."""
        places = finding.all_places
        return cls(
            modules=frozenset(name for p in places for name in (p.module, p.tensor) if name),
            layers=frozenset(p.layer for p in places if p.layer is not None),
            files=frozenset(p.file for p in places if p.file),
            requests=frozenset(p.request for p in places if p.request),
            blocks=frozenset(p.block for p in places if p.block is not None),
            whole=any(_is_whole(place) for place in places),
            rank=min(_rank(place) for place in places),
        )


def overlaps(one: Extent, other: Extent) -> bool:
    """Same request or block; else module or tensor, layer, file: the first grain that both name decides."""
    if one.whole or other.whole:
        return True
    if one.named and other.named:
        return not one.named.isdisjoint(other.named)
    for grain in ("modules", "layers", "files"):
        mine, theirs = getattr(one, grain), getattr(other, grain)
        if mine and theirs:
            return not mine.isdisjoint(theirs)
    return True


def _is_whole(place: Location) -> bool:
    if place.module or place.tensor or place.layer is not None or place.request or place.block is not None:
        return False
    return place.file is None or place.file.endswith(CONFIG_SUFFIXES)


def _rank(place: Location) -> int:
    if place.row is not None or place.element is not None or place.col is not None:
        return 4
    if place.module or place.tensor:
        return 3
    if place.layer is not None:
        return 2
    return 1 if place.file and not _is_whole(place) else 0
