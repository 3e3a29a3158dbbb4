"""The account of a diagnosis as titled lists of lines, which each writer shows in its own way.

A report read back from a file may hold anything under `diagnosis`, so everything is looked up with care and made visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from degarble.report.visible import visible

MAX_LINES = 40
MAX_TEXT = 600


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One titled list."""

    title: str
    lines: tuple[str, ...]
    is_prose: bool = False
    """Sentences rather than a list."""


def parts(diagnosis: Mapping[str, Any]) -> list[Part]:
    """Summary first; empty ones are left out."""
    made = [
        Part(title="Summary", lines=_texts(diagnosis.get("summary")), is_prose=True),
        Part(title="What was said", lines=tuple(_said(diagnosis.get("said")))),
        Part(
            title="Timeline",
            lines=tuple(f"{_text(r, 'when')}: {_text(r, 'what')}" for r in _rows(diagnosis, "timeline")),
        ),
        Part(title="Proof", lines=tuple(_proofs(diagnosis))),
        Part(title="Blast radius", lines=tuple(_by_cause(diagnosis, "blast_radius"))),
        Part(title="Repair", lines=tuple(_repair(diagnosis))),
        Part(title="Candidates, not proven", lines=tuple(_candidates(diagnosis))),
        Part(title="What to find out next", lines=tuple(_next(diagnosis))),
        Part(title="Not checked", lines=tuple(_not_checked(diagnosis.get("not_checked")))),
        Part(title="Regression tests to add", lines=tuple(_by_cause(diagnosis, "regression_test"))),
    ]
    return [msgspec.structs.replace(one, lines=one.lines[:MAX_LINES]) for one in made if one.lines]


def _rows(values: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    found = values.get(key)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list | tuple) else []


def _text(row: Mapping[str, Any], key: str) -> str:
    found = row.get(key)
    return visible(str(found), MAX_TEXT) if found is not None else "?"


def _texts(values: object) -> tuple[str, ...]:
    return tuple(visible(str(one), MAX_TEXT) for one in values) if isinstance(values, list | tuple) else ()


def _said(said: object) -> Iterator[str]:
    if not isinstance(said, Mapping):
        return
    for row in _rows(said, "rows"):
        yield f"row {_text(row, 'row')}: {_text(row, 'title')}"
    unknown = _texts(said.get("unknown"))
    if unknown:
        yield f"words that mean nothing here: {', '.join(unknown)}"
    if not _rows(said, "rows"):
        yield "no symptom of the table was recognised"


def _proofs(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    for row in _rows(diagnosis, "causes"):
        yield (
            f"{_text(row, 'rule')} ({_text(row, 'part')}): {_text(row, 'title')}; {_text(row, 'proof_kind')}: "
            f"{_text(row, 'proof')}"
        )


def _by_cause(diagnosis: Mapping[str, Any], key: str) -> Iterator[str]:
    for row in _rows(diagnosis, "causes"):
        yield f"{_text(row, 'rule')}: {_text(row, key)}"


def _repair(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    repair = diagnosis.get("repair")
    if isinstance(repair, Mapping):
        if _rows(repair, "steps"):
            yield f"run {_text(repair, 'command')}"
        yield f"verified: {_text(repair, 'verified')}"
        for row in _rows(repair, "refused"):
            yield f"{_text(row, 'rule')} was not repaired: {_text(row, 'reason')}"
    yield from _by_cause(diagnosis, "repair")
    healthy = diagnosis.get("healthy_text")
    if isinstance(healthy, Mapping):
        yield f"before: {_text(healthy, 'before')}"
        yield f"after: {_text(healthy, 'after')}"


def _candidates(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    proven = {_text(row, "hypothesis") for row in _rows(diagnosis, "causes")}
    for row in _rows(diagnosis, "candidates"):
        if _text(row, "hypothesis") not in proven:
            yield f"{_text(row, 'probability')} {_text(row, 'title')} ({'; '.join(_texts(row.get('reasons')))})"


def _next(diagnosis: Mapping[str, Any]) -> Iterator[str]:
    for row in _rows(diagnosis, "next"):
        missing = _texts(row.get("missing"))
        need = f"; needs {', '.join(missing)}" if missing else ""
        yield f"{_text(row, 'title')}: {_text(row, 'command')} (about {_text(row, 'seconds')} s{need})"


def _not_checked(values: object) -> Iterator[str]:
    if isinstance(values, Mapping):
        for what, reason in values.items():
            yield f"{visible(str(what), MAX_TEXT)}: {visible(str(reason), MAX_TEXT)}"
