"""A baseline: fingerprints of findings that were there when the gate was put up, and do not count until they change.

A fingerprint is made of rule and place, never of a measured number, so a baseline outlives a new quantisation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import msgspec

from degarble.errors import UsageError
from degarble.finding import Finding
from degarble.whole_file import write_whole

BASELINE_VERSION = 1


class _Entry(msgspec.Struct):
    fingerprint: str
    rule: str = ""
    place: str = ""


class _Baseline(msgspec.Struct):
    baseline_version: int
    findings: list[_Entry]


def read_baseline(path: Path) -> frozenset[str]:
    """Fingerprints in a file. Raises UsageError if it is no baseline."""
    try:
        stored = msgspec.json.decode(path.read_bytes(), type=_Baseline)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: no baseline: {error}") from None
    if stored.baseline_version != BASELINE_VERSION:
        raise UsageError(f"{path}: baseline_version {stored.baseline_version}; this version reads {BASELINE_VERSION}")
    return frozenset(entry.fingerprint for entry in stored.findings)


def write_baseline(path: Path, findings: Iterable[Finding]) -> int:
    """Write the fingerprints of all places, and return how many. The file appears complete or not at all."""
    entries = {
        single.fingerprint: _Entry(single.fingerprint, single.rule, single.location.name())
        for finding in findings
        for place in finding.all_places
        for single in [replace(finding, location=place, places=())]
    }
    stored = _Baseline(BASELINE_VERSION, sorted(entries.values(), key=lambda one: (one.rule, one.place)))
    text = msgspec.json.format(msgspec.json.encode(stored), indent=2) + b"\n"
    try:
        write_whole(path, text)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    return len(entries)
