"""What is measured for a rule: a number for every tensor, module, layer or file, the bound it is held against, and where.

A rule that looks twice reports only what both looks show. So the number here is the milder of the two; the second look
is taken where the first comes within CLOSE of the bound, and elsewhere the first alone is an upper limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from degarble.evidence import Evidence
from degarble.formats.interface import StoredModule

CLOSE = 0.5
"""Share of the bound from which the second look is taken as well."""


@dataclass(frozen=True, slots=True)
class Value:
    """One number."""

    kind: str
    """The class within the statistic: width, symmetry, format."""
    number: float
    place: str


Measure = Callable[[Evidence], Iterator[Value]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic:
    """One statistic of one rule."""

    rule: str
    what: str
    bound: float
    """Reported beyond it."""
    is_floor: bool
    """Whether faults lie below the bound rather than above."""
    measure: Measure

    @property
    def key(self) -> str:
        """Unique."""
        return f"{self.rule} {self.what}"


_FOUND: list[Statistic] = []


def above(rule: str, what: str, bound: float) -> Callable[[Measure], Measure]:
    """Mark a measure whose faults lie above the bound."""
    return _mark(rule, what, bound, False)


def below(rule: str, what: str, bound: float) -> Callable[[Measure], Measure]:
    """Mark a measure whose faults lie below the bound."""
    return _mark(rule, what, bound, True)


def _mark(rule: str, what: str, bound: float, is_floor: bool) -> Callable[[Measure], Measure]:
    def mark(measure: Measure) -> Measure:
        _FOUND.append(Statistic(rule=rule, what=what, bound=bound, is_floor=is_floor, measure=measure))
        return measure

    return mark


@cache
def statistics() -> tuple[Statistic, ...]:
    """All of them, by rule."""
    import scripts.calibration.of_codes
    import scripts.calibration.of_pairs
    import scripts.calibration.of_references
    import scripts.calibration.of_sizes  # noqa: F401

    return tuple(sorted(_FOUND, key=lambda one: (one.rule[:3] != "WGT", one.rule)))


def class_of(module: StoredModule, *, with_format: bool = False) -> str:
    """`asymmetric 4 bits`, or `fp8_block`."""
    scheme = module.form.scheme
    if scheme is None or scheme.type != "int" or with_format:
        return module.form.format if scheme is None or module.form.format != "gguf" else f"gguf {scheme.format}"
    has_zeros = any(role in module.form.roles for role in ("zero_point", "offset"))
    symmetry = "asymmetric" if has_zeros and not scheme.symmetric else "symmetric"
    return f"{symmetry}, {scheme.num_bits} bits"


def finite(values: Iterator[Value]) -> Iterator[Value]:
    """Without what cannot be measured."""
    return (one for one in values if not math.isnan(one.number))
