"""What a probe is, and the walk that finds them all."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cache
from typing import ClassVar

from degarble.probe.desk import Desk
from degarble.probe.exchange import Exchange
from degarble.registry import walk


class Probe(ABC):
    """A handful of questions that belong together. It judges nothing."""

    name: ClassVar[str]
    order: ClassVar[int]
    """Cheap and telling ones first: the budget may end in between."""

    @abstractmethod
    def run(self, desk: Desk) -> Iterator[Exchange]:
        """Ask, one record at a time. Never raises for what an endpoint answers."""


@cache
def probes() -> tuple[Probe, ...]:
    """Every probe of this package, in order."""
    package = importlib.import_module("degarble.probe")
    found: list[Probe] = []
    for module in walk(package):
        for member in vars(module).values():
            if (
                isinstance(member, type)
                and issubclass(member, Probe)
                and member.__module__ == module.__name__
                and member is not Probe
            ):
                found.append(member())
    return tuple(sorted(found, key=lambda probe: (probe.order, probe.name)))
