"""Dotted version numbers and ranges of them, read tolerantly.

Engines spell versions in several ways (`0.5.10.post1`, `v0.9.2`, `b4567`, `0.11.0rc2+cu128`), and the version may
come from a user's hand. A version that cannot be read gives `None`, never an exception and never a guess;
a *range* belongs to a data file of ours, so a bad one raises.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import eq, ge, gt, le, lt, ne
from typing import Any

_VERSION = re.compile(
    r"[vb]?(?P<release>\d{1,9}(?:\.\d{1,9}){0,7})(?:[._-]?(?P<stage>dev|a|b|rc|post)(?P<serial>\d{0,9}))?"
)
_CLAUSE = re.compile(r"(?P<comparison>>=|<=|==|!=|<|>)\s*(?P<version>\S+)")
_STAGE_ORDER = {"dev": -4, "a": -3, "b": -2, "rc": -1, None: 0, "post": 1}
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    ">=": ge,
    "<=": le,
    "==": eq,
    "!=": ne,
    ">": gt,
    "<": lt,
}

Version = tuple[tuple[int, ...], int, int]
"""Release numbers without trailing zeros, stage, serial number of the stage: ordered as Python orders tuples."""


def parse_version(text: str) -> Version | None:
    """Read a version; `None` if it is none. Local parts (`+cu128`) do not take part in comparisons."""
    found = _VERSION.fullmatch(text.strip().lower().partition("+")[0])
    if found is None:
        return None
    release = [int(number) for number in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    return tuple(release), _STAGE_ORDER[found["stage"]], int(found["serial"] or 0)


def in_range(version: str, spec: str) -> bool | None:
    """Whether `version` satisfies every comma-separated clause of `spec` (`">=5.0,<5.21"`).

    `None` if the version cannot be read. An empty range holds for every version. Raises ValueError on a bad range.
    """
    clauses = _clauses(spec)
    parsed = parse_version(version)
    if parsed is None:
        return None
    return all(_COMPARISONS[comparison](parsed, bound) for comparison, bound in clauses)


def check_range(spec: str) -> None:
    """Raise ValueError unless `spec` is a range that `in_range` understands."""
    _clauses(spec)


def _clauses(spec: str) -> list[tuple[str, Version]]:
    clauses = []
    for part in spec.split(",") if spec.strip() else []:
        found = _CLAUSE.fullmatch(part.strip())
        bound = parse_version(found["version"]) if found else None
        if found is None or bound is None:
            raise ValueError(f"version range: expected a comparison such as '>=1.2', found {part!r}")
        clauses.append((found["comparison"], bound))
    return clauses
