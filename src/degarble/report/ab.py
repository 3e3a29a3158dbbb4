"""The table of `degarble ab` for people: every metric of both sides, the interval of the difference, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "ab"
WIDTH = 100
MIB = 1 << 20


def ab_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines; every value is looked up with care, since a report read back may hold anything."""
    yield f"A {_text(found.get('a'))}"[:WIDTH]
    yield f"B {_text(found.get('b'))}"[:WIDTH]
    if found.get("reference") is not None:
        yield f"reference {_text(found.get('reference'))}"[:WIDTH]
    yield f"{'metric':<10}{'A':>10}{'B':>10}{'B - A':>11}   {'95 % interval':<25}{'prompts':>7}  B is"
    for row in _rows(found.get("metrics")):
        span = f"{_number(row.get('low'))} to {_number(row.get('high'))}"
        name, count = _text(row.get("metric")), _number(row.get("prompts"))
        values = "".join(f"{_number(row.get(key)):>10}" for key in ("a", "b"))
        yield f"{name:<10}{values}{_number(row.get('difference')):>11}   {span:<25}{count:>7}  {_verdict(row)}"[:WIDTH]
    for side, cost in _mapping(found.get("cost")).items():
        own = _mapping(cost)
        yield (
            f"{side.upper()[:1]} answered with {_number(own.get('tokens_per_second'))} tokens/s, weights "
            f"{_mib(own.get('weight_bytes'))} and cache {_mib(own.get('cache_bytes'))} as held"
        )[:WIDTH]
    for name, reason in _mapping(found.get("left_out")).items():
        yield f"left out: {name}: {_text(reason)}"[:WIDTH]
    yield f"B is {_text(found.get('verdict'))}"


def _verdict(row: Mapping[str, Any]) -> str:
    enough = row.get("prompts_that_would_tell")
    more = f" ({_number(enough)} would)" if isinstance(enough, int) else ""
    return f"{_text(row.get('verdict'))}{more}"


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, (list, tuple)) else []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else "-"


def _mib(value: object) -> str:
    return f"{value / MIB:.0f} MiB" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"


def _number(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"
