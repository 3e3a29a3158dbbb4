"""Numbers as profilers print them in the user's locale: `1,215,000.00`, `27.595.520` and `65,77` all occur."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

COMMA = re.compile(r"\d(\.\d{3})*,\d{1,2}$|\d(\.\d{3})*,\d{4,}$|^\d{1,3}(\.\d{3}){2,}$|^\d{1,3}(\.\d{3})+,\d+$")
"""Can only be written with a decimal comma."""
POINT = re.compile(r"\d(,\d{3})*\.\d{1,2}$|\d(,\d{3})*\.\d{4,}$|^\d{1,3}(,\d{3}){2,}$|^\d{1,3}(,\d{3})+\.\d+$")


def is_decimal_comma(values: Iterable[str]) -> bool:
    """Whether a file's values are written with a decimal comma; `1,234` alone does not tell and counts as a point's."""
    commas = points = 0
    for value in values:
        commas += COMMA.search(value) is not None
        points += POINT.search(value) is not None
    return commas > points


def number_of(text: str, *, has_comma: bool) -> float | None:
    """The number, or None for `n/a`, text and what is not finite."""
    plain = text.strip().replace("\u202f", "").replace("\xa0", "").replace(" ", "").replace("'", "")
    plain = plain.replace(".", "").replace(",", ".") if has_comma else plain.replace(",", "")
    if not plain or len(plain) > 64 or not plain.isascii():
        return None
    try:
        value = float(plain)
    except ValueError:
        return None
    return value if math.isfinite(value) and "_" not in plain else None


def integer_of(text: str, *, has_comma: bool) -> int | None:
    """The same as a whole number below 2^63."""
    value = number_of(text, has_comma=has_comma)
    return int(value) if value is not None and abs(value) < 1 << 63 else None


def triple_of(text: str) -> tuple[int, int, int] | None:
    """`(256, 1, 1)` as Nsight Compute prints a grid."""
    found = re.fullmatch(r"\s*\(?\s*(\d{1,10})\s*[,x]\s*(\d{1,10})\s*[,x]\s*(\d{1,10})\s*\)?\s*", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
