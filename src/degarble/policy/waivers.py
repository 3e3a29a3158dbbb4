"""Waivers: a rule, where it does not count, why, and until when.

    [[waiver]]
    rule = "WGT216"
    scope = "model.layers.3.*"
    reason = "trained that way; see the model card"
    expires = 2027-03-01

`scope` is a glob over the file, the tensor, the module and the key of a finding. A waiver without a reason is an error; one
that is past its date, or that met nothing, is reported.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble.finding import Finding

KEYS = frozenset({"rule", "scope", "reason", "expires"})


class Waiver(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a waivers file."""

    rule: str
    scope: str
    reason: str
    expires: date | None = None

    def is_expired(self, today: date) -> bool:
        """Whether its last day has passed."""
        return self.expires is not None and today > self.expires

    def covers(self, finding: Finding) -> bool:
        """Whether rule and place are meant."""
        place = finding.location
        names = (place.file, place.tensor, place.module, place.key, place.name())
        return self.rule == finding.rule and any(name is not None and fnmatchcase(name, self.scope) for name in names)


def read_waivers(path: Path, rules: Iterable[str]) -> tuple[Waiver, ...]:
    """Read a file. Raises UsageError for anything that is not a waiver of a known rule with a reason."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    strange = sorted(document.keys() - {"waiver"})
    entries = document.get("waiver", [])
    if strange or not isinstance(entries, list):
        raise UsageError(f"{path}: {strange[0] if strange else 'waiver'}: only [[waiver]] tables are known here")
    known = frozenset(rules)
    return tuple(_waiver(f"{path}: waiver {number}", entry, known) for number, entry in enumerate(entries, start=1))


def _waiver(place: str, entry: Any, rules: frozenset[str]) -> Waiver:
    if not isinstance(entry, dict) or entry.keys() - KEYS:
        raise UsageError(f"{place}: expected the keys {', '.join(sorted(KEYS))}, found {entry!r:.80}")
    texts = {key: _text(place, entry, key) for key in ("rule", "scope", "reason")}
    if texts["rule"] not in rules:
        raise UsageError(f"{place}: rule: {texts['rule']!r:.40} is no rule: `degarble rules` lists them")
    expires = entry.get("expires")
    if isinstance(expires, datetime) or not isinstance(expires, date | None):
        raise UsageError(f"{place}: expires: expected a date such as 2027-03-01, found {expires!r:.40}")
    return Waiver(rule=texts["rule"], scope=texts["scope"], reason=texts["reason"].strip(), expires=expires)


def _text(place: str, entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{place}: {key}: required, and not empty")
    return value
