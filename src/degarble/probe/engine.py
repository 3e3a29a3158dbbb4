"""Which engine an endpoint is, by marks of `data/engines/endpoints.toml`. What has none of them is named unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from degarble.engines.table import read_table
from degarble.probe import reading
from degarble.probe.connection import Connection

UNKNOWN = "unknown"
MAX_VERSION = 80


class VersionPlace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where an engine tells its version."""

    path: str
    key: str


class Marks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one engine is recognised."""

    name: str
    source: str
    owned_by: tuple[str, ...] = ()
    fingerprint: str | None = None
    metrics: tuple[str, ...] = ()
    server: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    version: VersionPlace | None = None
    token_ids: bool = False


class MarkTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The data file."""

    engines: tuple[Marks, ...]


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What was recognised, and by what."""

    name: str = UNKNOWN
    version: str | None = None
    by: tuple[str, ...] = ()
    """The marks that were seen."""
    token_ids: bool = False
    """Whether it knows `return_token_ids`."""

    @property
    def shown(self) -> str:
        """For reports."""
        return f"{self.name} {self.version}" if self.version else self.name


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint showed of itself."""

    owned_by: str = ""
    server: str = ""
    fingerprint: str = ""
    metrics: frozenset[str] = frozenset()
    """Names in /metrics."""
    errors: tuple[str, ...] = ()
    """Texts of refusals."""


@cache
def marks() -> tuple[Marks, ...]:
    """Of every engine that is known."""
    return read_table(MarkTable, "endpoints.toml").engines


def recognise(signs: Signs) -> Engine:
    """The engine with the most marks; unknown where there are none, or two engines have as many."""
    seen = [(one, tuple(_seen(one, signs))) for one in marks()]
    best = max(len(by) for _, by in seen)
    candidates = [(one, by) for one, by in seen if best and len(by) == best]
    if len(candidates) != 1:
        return Engine(by=tuple(f"{one.name}: {mark}" for one, by in candidates for mark in by))
    one, by = candidates[0]
    return Engine(name=one.name, version=_version_in(one, signs.fingerprint), by=by, token_ids=one.token_ids)


def _seen(one: Marks, signs: Signs) -> Iterator[str]:
    if signs.owned_by in one.owned_by:
        yield f"owned_by {signs.owned_by}"
    if any(name.startswith(one.metrics) for name in signs.metrics if one.metrics):
        yield f"metrics {one.metrics[0]}…"
    if one.server and signs.server.startswith(one.server):
        yield f"server {signs.server[:MAX_VERSION]}"
    if one.fingerprint is not None and re.fullmatch(one.fingerprint + ".*", signs.fingerprint):
        yield f"system_fingerprint {signs.fingerprint[:MAX_VERSION]}"
    if any(re.search(pattern, text) for pattern in one.errors for text in signs.errors):
        yield "the form of its errors"


def _version_in(one: Marks, fingerprint: str) -> str | None:
    found = re.match(one.fingerprint, fingerprint) if one.fingerprint is not None else None
    return found[1] if found else None


def with_version(engine: Engine, connection: Connection) -> Engine:
    """Ask the engine for its version where it tells it; it is left out where the answer is none."""
    place = next((one.version for one in marks() if one.name == engine.name), None)
    if engine.version is not None or place is None:
        return engine
    reply = connection.get(place.path)
    if reply.failure is not None:
        return engine
    try:
        document: Any = reading.parse_json(reply.body)
    except reading.BadShape:
        return engine
    found = document.get(place.key) if isinstance(document, dict) else None
    is_version = isinstance(found, str) and found.isprintable() and 0 < len(found) <= MAX_VERSION
    return msgspec.structs.replace(engine, version=found) if is_version else engine
