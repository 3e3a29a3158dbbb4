"""Filters, methods and operators whose result can be far larger than what they are given: paid for in advance."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from degarble.templates.budget import CHARACTERS_OF_UNIT, Budget, TemplateNotJudged, TemplateTooCostly, afford_bits

MAX_WIDTH = 10_000
"""Columns to which a text is padded, rows into which a list is cut."""
PAIRS_OF_UNIT = 16_384
"""Pairs of characters that are compared in the time of one unit, where an algorithm compares all with all."""
MAX_SLOW_TEXT = 4096
"""Characters for filters that search with regular expressions or lay out text, some in quadratic time."""
WIDE = re.compile(r"%[^%a-zA-Z]*(\d{5,}|\*)|\{[^{}:]*:[^{}]*\d{5,}")
"""A width in a format: `%99999d`, `%*d`, `{:99999}`."""
UNCLEAR = re.compile(r"\d{5}|\{[^{}:]*:[^{}]*\{")
"""A long number that may be a width all the same, as in `%(a)99999d`; a width that is itself a field, as in `{:{w}}`."""
NUMBER = re.compile(r"\d{1,4}")

Cost = Callable[..., None]


def free(budget: Budget, *args: Any, **kwargs: Any) -> None:
    """Nothing beyond what it is given."""


def _padded(budget: Budget, text: Any, width: Any = 80, *_: Any, **named: Any) -> None:
    width = named.get("width", width)
    _narrow(width)
    budget.afford_text(abs(width) + _length(text))


def _tabs(budget: Budget, text: Any, tabsize: Any = 8, **_: Any) -> None:
    _narrow(tabsize)
    budget.afford_text(_length(text) * max(1, int(tabsize)))


def _replaced(budget: Budget, text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    """The filter turns whatever it is given into text, which is paid for by then."""
    text, old, new = str(text), str(old), str(new)
    budget.afford_text(len(text) + text.count(old) * len(new))


def _joined_by_method(budget: Budget, glue: Any, parts: Any = (), **_: Any) -> None:
    _joined(budget, parts, glue)


def _joined(budget: Budget, parts: Any, glue: Any = "", *_: Any, **named: Any) -> None:
    if isinstance(parts, Sequence):
        budget.afford_text(len(parts) * _length(named.get("d", glue)))
    elif _length(named.get("d", glue)) > CHARACTERS_OF_UNIT:
        raise TemplateNotJudged("joining with a long separator")


def _formatted(budget: Budget, text: Any, *values: Any, **named: Any) -> None:
    """`%` and `format`: no giant widths, and each field may hold all that is given."""
    text = str(text)
    given = (*values, *named.values())
    if WIDE.search(text):
        raise TemplateTooCostly("a format with a width of more than 9999")
    if UNCLEAR.search(text):
        raise TemplateNotJudged("a format with a width that cannot be told")
    widest = max(map(int, NUMBER.findall(text)), default=0)
    field = max(widest, _paid(budget, given) * CHARACTERS_OF_UNIT)
    budget.afford_text(len(text) + (text.count("%") + text.count("{")) * field)


def _indented(budget: Budget, text: Any, width: Any = 4, *_: Any, **named: Any) -> None:
    width = named.get("width", width)
    columns = _length(width) if isinstance(width, str) else width
    _narrow(columns)
    lines = text.count("\n") + 1 if isinstance(text, str) else 1
    budget.afford_text(_length(text) + lines * int(columns))


def _cut(budget: Budget, value: Any, count: Any = 1, *_: Any, **__: Any) -> None:
    _narrow(count)
    budget.spend(int(count))


def _rounded(budget: Budget, value: Any, precision: Any = 0, *_: Any, **__: Any) -> None:
    if not isinstance(precision, int) or abs(precision) > 300:
        raise TemplateTooCostly("rounding to more than 300 places")


def _json(budget: Budget, value: Any, *_: Any, indent: Any = None, separators: Any = None, **__: Any) -> None:
    columns = _length(indent) if isinstance(indent, str) else indent or 0
    _narrow(columns)
    between = int(columns) + sum(map(_length, separators or ()))
    budget.spend(_paid(budget, value) * between // 8)


def _summed(budget: Budget, value: Any, attribute: Any = None, start: Any = 0) -> None:
    if not isinstance(start, int | float):
        raise TemplateNotJudged("the sum of values that are no numbers")


def _slow(budget: Budget, text: Any, *_: Any, **__: Any) -> None:
    length = _paid(budget, text) * CHARACTERS_OF_UNIT
    if length > MAX_SLOW_TEXT:
        raise TemplateNotJudged("laying out a long text")
    budget.spend(length)


def _stripped(budget: Budget, text: Any, chars: Any = None, *_: Any, **__: Any) -> None:
    """Each character of the text is looked up among those to be stripped, one by one."""
    budget.spend(_length(text) * _length(chars) // PAIRS_OF_UNIT)


def _searched_backwards(budget: Budget, text: Any, part: Any = "", *_: Any, **named: Any) -> None:
    """Searching forwards is linear in CPython since 3.10; backwards it is not."""
    budget.spend(_length(text) * _length(named.get("sep", part)) // PAIRS_OF_UNIT)


def _unknown(budget: Budget, *_: Any, **__: Any) -> None:
    raise TemplateNotJudged("a method that no chat template needs")


def _paid(budget: Budget, value: Any) -> int:
    """Weigh a value, and say what it weighed."""
    before = budget.left
    budget.weigh(value)
    return before - budget.left


def _narrow(count: Any) -> None:
    if not isinstance(count, int) or abs(count) > MAX_WIDTH:
        raise TemplateTooCostly(f"a width or count of more than {MAX_WIDTH}")


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


FILTERS: Mapping[str, Cost] = {
    "batch": _cut,
    "center": _padded,
    "format": _formatted,
    "indent": _indented,
    "join": _joined,
    "pprint": _slow,
    "replace": _replaced,
    "round": _rounded,
    "slice": _cut,
    "striptags": _slow,
    "sum": _summed,
    "tojson": _json,
    "trim": _stripped,
    "urlize": _slow,
    "wordwrap": _slow,
    "xmlattr": _slow,
}
METHODS: Mapping[str, Cost] = {
    "center": _padded,
    "encode": _unknown,
    "expandtabs": _tabs,
    "format": _formatted,
    "format_map": _formatted,
    "join": _joined_by_method,
    "ljust": _padded,
    "lstrip": _stripped,
    "maketrans": _unknown,
    "replace": _replaced,
    "rfind": _searched_backwards,
    "rindex": _searched_backwards,
    "rjust": _padded,
    "rpartition": _searched_backwards,
    "rsplit": _searched_backwards,
    "rstrip": _stripped,
    "strip": _stripped,
    "striptags": _unknown,
    "translate": _unknown,
    "unescape": _unknown,
    "zfill": _padded,
}
"""Methods of strings; all others of them cost what the string weighs."""


def pay_operator(budget: Budget, operator: str, left: Any, right: Any) -> None:
    """Pay for what an arithmetic operator will make; what it is given is paid for already."""
    if operator == "%" and isinstance(left, str):
        _formatted(budget, left, *(right if isinstance(right, tuple) else (right,)))
    elif operator == "*":
        _multiplied(budget, left, right)
    elif operator == "+" and _length(left):
        budget.afford_text(_length(left) + _length(right))
    elif operator == "**":
        if not isinstance(right, int | float) or abs(right) > 4096:
            raise TemplateTooCostly("a power of more than 4096")
        if isinstance(left, int):
            afford_bits(left.bit_length() * int(abs(right)))


def _multiplied(budget: Budget, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        afford_bits(left.bit_length() + right.bit_length())
    for sequence, times in ((left, right), (right, left)):
        if isinstance(sequence, str | bytes | list | tuple) and isinstance(times, int):
            budget.afford_text(len(sequence) * max(0, times))
            if not isinstance(sequence, str):
                budget.spend(len(sequence) * max(0, times))
