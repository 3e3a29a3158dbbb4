"""How much work a template may make us do, counted in units instead of seconds: the same verdict on every machine.

A unit is one step: a turn of a loop, a call, a look-up, an element of a container, or 64 characters of text. Every
operation that touches a value pays for its size *before* it runs, so no single step can be large, and a template that
would run for hours, or double a string sixty times, ends at the same place everywhere, in well under a second.
"""

from __future__ import annotations

from typing import Any

from jinja2.utils import Namespace

MAX_TEXT = 1 << 20
"""Characters of one string; templates in use write some 20,000 in all."""
MAX_DEPTH = 100
"""Lists inside lists. Hashing and comparing recurse in C, where depth is not always guarded."""
MAX_BITS = 4096
"""Bits of one integer."""
CHARACTERS_OF_UNIT = 64


class TemplateTooCostly(Exception):
    """The template asked for more than the budget; what for is the message."""


class TemplateNotJudged(Exception):
    """The template uses something whose cost is not known here; what is the message."""


class Budget:
    """Units that are left. One budget serves all renderings of a template."""

    def __init__(self, units: int) -> None:
        self.units = units
        self.left = units

    def spend(self, units: int, what: str = "work") -> None:
        """Pay, or raise TemplateTooCostly."""
        self.left -= units
        if self.left < 0:
            raise TemplateTooCostly(f"more than {self.units} steps of {what}")

    def weigh(self, value: Any) -> None:
        """Pay for a value by its size, nested ones included; a list that holds itself is endless."""
        kind = type(value)
        if kind is str:
            self.afford_text(len(value))
        elif kind is int:
            afford_bits(value.bit_length())
            self.spend(1)
        elif value is None or kind is bool or kind is float:
            self.spend(1)
        else:
            self._weigh_nested(value)

    def afford_text(self, length: int) -> None:
        """Pay for a text of that many characters, which need not exist yet."""
        if length > MAX_TEXT:
            raise TemplateTooCostly(f"a text of {_round(length)} characters, more than {MAX_TEXT}")
        self.spend(1 + length // CHARACTERS_OF_UNIT, "text")

    def _weigh_nested(self, value: Any) -> None:
        stack = [(value, 0)]
        while stack:
            item, depth = stack.pop()
            if isinstance(item, str):
                self.afford_text(len(item))
                continue
            if isinstance(item, int):
                afford_bits(item.bit_length())
            inner = _inner(item)
            self.spend(1 + len(inner))
            if depth > MAX_DEPTH:
                raise TemplateTooCostly(f"lists nested more than {MAX_DEPTH} deep")
            if not isinstance(inner, range):
                stack += [(child, depth + 1) for child in inner]


def afford_bits(bits: int) -> None:
    """Raise TemplateTooCostly for a number of that many bits."""
    if bits > MAX_BITS:
        raise TemplateTooCostly(f"a number of {_round(bits)} bits, more than {MAX_BITS}")


def _inner(value: Any) -> Any:
    """What a container holds; a namespace prints its attributes, so they count."""
    if isinstance(value, Namespace):
        value = object.__getattribute__(value, "_Namespace__attrs")
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list | tuple | set | frozenset | range) else ()


def _round(number: int) -> str:
    """A number that may itself have a billion digits."""
    return str(number) if number.bit_length() < 64 else f"2**{number.bit_length() - 1}"
