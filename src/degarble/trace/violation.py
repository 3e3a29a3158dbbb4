"""What a replay finds: one broken invariant at one event, and the journal that keeps a bounded number of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

Number = int | float | str | None

MAX_KEPT = 200
"""Violations kept of one rule; further ones are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One rule broken at one event."""

    rule: str
    line: int
    """The event's counter `n`."""
    message: str
    file: str = ""
    request: str | None = None
    block: int | None = None
    slot: int | None = None
    position: int | None = None
    layer: int | None = None
    key: str | None = None
    life: tuple[str, ...] = ()
    """What happened to the block before, oldest first."""
    measured: Mapping[str, Number] = field(default_factory=dict)
    bound: Mapping[str, Number] = field(default_factory=dict)
    is_info: bool = False
    is_likely: bool = False
    boundary: str = ""
    """What the position lies on: block, chunk, window, prefix, rejection, 2^31."""


class Journal:
    """Collects violations of one replay.

    Of one rule and request (or block, where no request is concerned) only the first is kept: what follows it is its
    consequence far more often than a second fault. The others are counted in `further`.
    """

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.further: Counter[str] = Counter()
        self.file = ""
        self.floor = -1
        """Counter up to which events came in order; what came late broke things by coming late."""
        self._seen: set[tuple[object, ...]] = set()
        self._kept: Counter[str] = Counter()

    def add(self, violation: Violation) -> None:
        """Keep one, unless its like has been told."""
        who = violation.request if violation.request is not None else violation.block
        key = (violation.rule, violation.file, who, violation.is_info, violation.key)
        is_single = who is None and violation.key is None
        if (
            violation.line < self.floor
            or (key in self._seen and not is_single)
            or self._kept[violation.rule] >= MAX_KEPT
        ):
            self.further[violation.rule] += 1
            return
        self._seen.add(key)
        self._kept[violation.rule] += 1
        self.violations.append(violation)

    @property
    def first(self) -> Violation | None:
        """The earliest of all that are no mere notes."""
        real = [violation for violation in self.violations if not violation.is_info]
        return min(real, key=lambda violation: violation.line, default=None)
