"""Evidence by name: a provider is a function whose parameters name the evidence *it* needs.

A check that asks for `modules` makes the store call the provider `modules(tensors, declaration, …)`, once, and so on
down to the roots `source`, `settings`, `coverage` and `reference`. An input that is absent raises EvidenceMissing with
the reason, which the runner turns into a skip; the reason is kept, so that every later asker gets the same one. A parameter with
the default None is optional: it is None where the evidence is absent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from degarble.checkpoint.interface import Source
from degarble.errors import EvidenceMissing, EvidenceUnjudged, MalformedFile, MissingExtra, TargetError
from degarble.executor import Progress
from degarble.registry import Level, Need, needs_of, walk

Provider = Callable[..., Any]

NOT_AT_HEADER_LEVEL = "reads tensor contents, and --level header was asked for"
"""Why a content check or provider does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user narrowed the question to."""

    level: Level = Level.CONTENT
    engine: str | None = None
    engine_version: str | None = None
    tensor_parallel: int | None = None
    expert_parallel: int | None = None
    dtype: str | None = None
    known_issues: str | None = None
    """Path of a data file that replaces the one in the package."""
    sample: bool = False
    """Read only a part of every large tensor; the report is partial then."""
    exhaustive: bool = False
    """Statistics over all outputs, neurons and experts instead of samples."""
    cache: str | None = None
    """Folder in which profiles are kept between runs."""
    progress: Progress | None = None
    """Told how far long work is; None for library calls."""


@dataclass(slots=True)
class Coverage:
    """What was given and could not be judged. Anything here keeps the report from saying `ok`."""

    unjudged: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, reason: str) -> None:
        """Note one thing, once."""
        self.unjudged.setdefault(what, reason)


def provides(name: str, *, level: Level = Level.HEADER) -> Callable[[Provider], Provider]:
    """Mark a function as the provider of the evidence `name`; `level` content: it reads tensors, which may be many."""

    def mark(function: Provider) -> Provider:
        function.__dict__["degarble_evidence"] = name
        function.__dict__["degarble_level"] = level
        return function

    return mark


@cache
def providers() -> Mapping[str, tuple[Provider, tuple[Need, ...]]]:
    """Every provider of this package with the names it needs."""
    import degarble.evidence as package

    found: dict[str, tuple[Provider, tuple[Need, ...]]] = {}
    for module in walk(package):
        for member in vars(module).values():
            name = getattr(member, "__dict__", {}).get("degarble_evidence")
            if name is not None and member.__module__ == module.__name__:
                found[name] = (member, needs_of(member))
    return found


class Evidence:
    """All inputs of one target."""

    def __init__(self, source: Source, settings: Settings, reference: Evidence | None = None) -> None:
        self.coverage = Coverage()
        self._values: dict[str, Any] = {"source": source, "settings": settings, "coverage": self.coverage}
        self._absent: dict[str, EvidenceMissing] = {}
        if reference is None:
            self._absent["reference"] = EvidenceMissing("no --reference given")
        else:
            self._values["reference"] = reference

    def get(self, name: str) -> Any:
        """The value of one evidence. Raises EvidenceMissing with the reason if there is none."""
        if name in self._values:
            return self._values[name]
        if name in self._absent:
            raise self._absent[name]
        if name not in providers():
            raise KeyError(f"no evidence is called {name!r}")
        function, needs = providers()[name]
        try:
            self._permit(function)
            value = function(*self.gather(needs))
        except EvidenceMissing as reason:
            self._absent[name] = reason
            raise
        except (MalformedFile, TargetError) as error:
            self._absent[name] = EvidenceUnjudged(str(error))
            raise self._absent[name] from None
        except ModuleNotFoundError as error:
            self._absent[name] = MissingExtra(error)
            raise self._absent[name] from None
        self._values[name] = value
        return value

    def _permit(self, function: Provider) -> None:
        """At header level no provider of contents runs, whoever asks for it."""
        if function.__dict__["degarble_level"] is Level.CONTENT and self._values["settings"].level is Level.HEADER:
            raise EvidenceMissing(NOT_AT_HEADER_LEVEL)

    def gather(self, needs: Sequence[Need]) -> list[Any]:
        """The values of several; None for an optional one that is absent."""
        return [self.find(need.name) if need.optional else self.get(need.name) for need in needs]

    def supply(self, name: str, value: Any) -> None:
        """Evidence that a command computed: what a forward pass showed."""
        self._values[name] = value

    def find(self, name: str) -> Any | None:
        """The value, or None where `get` would raise EvidenceMissing."""
        try:
            return self.get(name)
        except EvidenceMissing:
            return None


__all__ = ["Coverage", "Evidence", "Settings", "providers", "provides"]
