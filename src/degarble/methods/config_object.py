"""Typed reading of a config object that may hold anything: a wrong type is noted and ignored, never raised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from degarble.methods.interface import SkipList

MAX_NAMES = 200_000
"""A skip list longer than this is ignored; DeepSeek-V3 has 46,000 linears."""


class ConfigObject:
    """One JSON object, and which of its keys had the wrong type."""

    def __init__(self, raw: Mapping[str, Any], *, file: str, key: str) -> None:
        self.raw = raw
        self.file = file
        self.key = key
        self.ill_typed: list[str] = []

    def path(self, name: str) -> str:
        """Dotted path of one key, for a reader who wants to find it."""
        return f"{self.key}.{name}" if self.key else name

    def text(self, name: str) -> str | None:
        """A string; None if absent, null or something else."""
        value = self.raw.get(name)
        if isinstance(value, str):
            return value
        self._note(name)
        return None

    def boolean(self, name: str) -> bool | None:
        """true or false; None if absent, null or something else."""
        value = self.raw.get(name)
        if isinstance(value, bool):
            return value
        self._note(name)
        return None

    def integer(self, name: str) -> int | None:
        """A positive whole number below a million; None if absent, null or something else."""
        value = self.raw.get(name)
        if is_count(value):
            return value
        self._note(name)
        return None

    def pair(self, name: str) -> tuple[int, int] | None:
        """A list of two positive whole numbers; None if absent, null or something else."""
        value = self.raw.get(name)
        if isinstance(value, list) and len(value) == 2 and all(is_count(item) for item in value):
            return value[0], value[1]
        self._note(name)
        return None

    def child(self, name: str) -> Mapping[str, Any]:
        """A nested object; empty if absent, null or something else."""
        value = self.raw.get(name)
        if isinstance(value, dict):
            return value
        self._note(name)
        return {}

    def skips(self, *names: str) -> tuple[SkipList, ...]:
        """Skip lists under any of these keys. Entries that are no strings are left out and noted."""
        found: list[SkipList] = []
        for name in names:
            value = self.raw.get(name)
            if value is None:
                continue
            if not isinstance(value, list) or len(value) > MAX_NAMES:
                self._note(name)
                continue
            entries = tuple(entry for entry in value if isinstance(entry, str))
            if len(entries) != len(value):
                self.ill_typed.append(self.path(name))
            found.append(SkipList(file=self.file, key=self.path(name), entries=entries))
        return tuple(found)

    def _note(self, name: str) -> None:
        if self.raw.get(name) is not None:
            self.ill_typed.append(self.path(name))


def is_count(value: object) -> TypeGuard[int]:
    """A positive whole number below a million, and no boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1_000_000
