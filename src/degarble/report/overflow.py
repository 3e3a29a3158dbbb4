"""The table of `degarble overflow` for people: a row an engine, and the largest numbers with their margin to fp16."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

KIND = "overflow"
MAX_NAMES = 6
"""Modules listed in a line; the report in JSON has all."""
NOWHERE = "no dtype that was run stays whole in any engine"


def overflow_lines(found: Mapping[str, Any]) -> Iterator[str]:
    """Plain lines; every value is looked up with care, since a report read back may hold anything."""
    yield f"run on {found.get('tokens', '?')} tokens, the longest text of {found.get('longest', '?')}"[:100]
    yield f"{'engine':>17} {'dtype':>5} {'safe length':>12} {'lost':>7}  first place"
    for row in _rows(found, "rows"):
        safe = row.get("max_safe_length")
        rate = row.get("nan_rate")
        place = f"{row.get('place')} of {row.get('first_module')}" if row.get("place") else "-"
        yield (
            f"{str(row.get('engine', '?'))[:17]:>17} {str(row.get('dtype', '?'))[:5]:>5} "
            f"{'all' if safe is None else str(safe)[:12]:>12} "
            f"{f'{rate:.2%}' if isinstance(rate, float) else '-':>7}  {place[:54]}"
        )
    peaks = _rows(found, "peaks")
    if peaks:
        yield f"{'largest |x|':>13} {'65504 / it':>11}  exact run"
    for row in peaks[:6]:
        value, margin = row.get("value"), row.get("margin")
        if isinstance(value, (int, float)) and isinstance(margin, (int, float)):
            yield f"{value:>13.5g} {margin:>11.4g}  {row.get('place', '?')} of {row.get('module', '?')}"[:100]
    yield from _advice(found.get("advice"))


def _advice(found: object) -> Iterator[str]:
    """Three ways out; each says so where it is none."""
    if not isinstance(found, Mapping):
        return
    dtype, lost = found.get("dtype"), found.get("not_in")
    but = f", but in {', '.join(map(str, lost))}" if isinstance(lost, (list, tuple)) and lost else ""
    yield f"serve in {dtype}: whole in every engine that was run{but}"[:200] if dtype else NOWHERE
    if "rescale" not in found and "no_rescale" not in found:
        return
    names = found.get("upcast")
    if isinstance(names, (list, tuple)) and names:
        more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        yield f"or keep in fp32, with the rest in fp16: {', '.join(map(str, names[:MAX_NAMES]))}"[:400] + more
    if found.get("rescale"):
        yield f"or rescale by powers of two, the same function: {found['rescale']}"[:600]
    else:
        yield f"no rescale by powers of two: {found.get('no_rescale')}"[:400]


def _rows(found: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = found.get(key)
    return [row for row in value if isinstance(row, Mapping)] if isinstance(value, (list, tuple)) else []
