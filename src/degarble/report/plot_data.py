"""What is drawn for a finding: its module beside the same module of other layers, out of the report's profile.

A profile read back from a file may hold anything, so every number is looked up with care and may be absent.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from degarble.finding import Finding
from degarble.report.words import also_names

MAX_BINS = 256
_LAYER = re.compile(r"(?<=\.)\d+(?=\.)")
Read = Callable[[Mapping[str, Any]], float | None]


def reader(*path: str) -> Read:
    """Looks up a finite number in a row of the profile."""

    def read(row: Mapping[str, Any]) -> float | None:
        value: Any = row
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and abs(value) < 1e300 else None

    return read


def _scale_median(row: Mapping[str, Any]) -> float | None:
    exponent = reader("scales", "log2_median")(row)
    return 2.0**exponent if exponent is not None and abs(exponent) < 1000 else None


MEASURES: Mapping[str, Read] = {
    "largest value": reader("values", "absmax"),
    "rms of values": reader("values", "rms"),
    "median scale": _scale_median,
    "largest scale": reader("scales", "absmax"),
    "scales that are zero": reader("scales", "zeros"),
    "outputs that are zero": reader("num_dead_rows"),
}
STRIPS = ("largest value", "rms of values", "median scale")
"""The measures that are drawn; the table has them all."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """One module of the profile."""

    name: str
    layer: int
    row: Mapping[str, Any]

    def histogram(self) -> list[float] | None:
        """Share of each code, if there are codes."""
        codes = self.row.get("codes")
        counts = codes.get("histogram") if isinstance(codes, Mapping) else None
        if not isinstance(counts, list | tuple) or not 2 <= len(counts) <= MAX_BINS:
            return None
        if not all(isinstance(count, int | float) and 0 <= count < 1e300 for count in counts) or sum(counts) <= 0:
            return None
        return [count / sum(counts) for count in counts]


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """The module of a finding and its peers, in the order of layers."""

    name: str
    peers: tuple[Peer, ...]
    marked: frozenset[int]
    """Layers that the finding names."""

    @property
    def this(self) -> Peer:
        """The module of the finding."""
        return next(peer for peer in self.peers if peer.name == self.name)

    @property
    def others(self) -> tuple[Peer, ...]:
        """Peers in layers that the finding does not name."""
        return tuple(peer for peer in self.peers if peer.layer not in self.marked)

    def usual(self, read: Read) -> float | None:
        """Median of the others."""
        values = [value for peer in self.others if (value := read(peer.row)) is not None]
        return statistics.median(values) if values else None


class Peers:
    """All groups of a profile: names that differ in the number of their layer only."""

    def __init__(self, profile: Mapping[str, Any]) -> None:
        self._groups: dict[str, list[Peer]] = {}
        self._template: dict[str, str] = {}
        for name, row in profile.items():
            layer = row.get("layer") if isinstance(row, Mapping) else None
            if isinstance(layer, int) and 0 <= layer < 100_000:
                self._template[name] = _LAYER.sub("*", name, count=1)
                self._groups.setdefault(self._template[name], []).append(Peer(name=name, layer=layer, row=row))

    def group(self, finding: Finding) -> Group | None:
        """The group of a finding's module, if the profile has it."""
        name = finding.location.module
        if name is None or name not in self._template:
            return None
        peers = tuple(sorted(self._groups[self._template[name]], key=lambda peer: peer.layer))
        also = also_names(finding)
        marked = {peer.layer for peer in peers if peer.name == name or any(_is_in(other, peer.name) for other in also)}
        return Group(name=name, peers=peers, marked=frozenset(marked))


def _is_in(tensor: str, module: str) -> bool:
    return tensor == module or tensor.startswith(module + ".")


def ratio(value: float | None, usual: float | None) -> float | None:
    """How many times the usual value."""
    if value is None or usual is None or usual == 0 or not math.isfinite(value / usual):
        return None
    return value / usual
