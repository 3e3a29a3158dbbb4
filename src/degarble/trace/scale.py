"""Scales of a quantised cache as the engine used them: finite, positive, plausible, and the same on both sides (WGT224)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from degarble.trace.event import Scale
from degarble.trace.state import State

SMALLEST = 1e-6
LARGEST = 1e3
"""The bounds of stored scales (WGT224's page): amax / 448, keys of the worst model known reach 921."""
SIDES = frozenset(("write", "read"))


class ScaleJudge:
    """Judges every scale, and the two sides of a layer's part against one another."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.used: dict[tuple[int, int | None, str | None, str], tuple[int, Any]] = {}

    def on_scale(self, event: Scale) -> None:
        """One scale, where it is used."""
        place = f"the {event.part or 'cache'} scale of layer {event.layer}"
        for value in _numbers(event.value):
            what, is_likely = _verdict(value)
            if what is not None:
                self._fail(event, f"{place} is {what} ({value!r})", value, is_likely)
                return
        if event.value is None:
            return
        for side in SIDES & set(event.used_on or ()):
            other = self.used.get((event.g, event.layer, event.part, "read" if side == "write" else "write"))
            self.used[event.g, event.layer, event.part, side] = (event.n, event.value)
            if other is not None and other[1] != event.value and side not in _both(event):
                self._fail(event, f"{place} is {event.value} on {side} and {other[1]} on the other side", None, False)
                return

    def on_end(self) -> None:
        """A scale that only one side ever used: written with it and read without, or the other way."""
        for (g, layer, part, side), (n, value) in list(self.used.items()):
            other = "read" if side == "write" else "write"
            if (g, layer, part, other) not in self.used and value != 1.0:
                message = f"the {part or 'cache'} scale of layer {layer} ({value}) is used on {side} and not on {other}"
                self.state.fail("WGT224", n, message, layer=layer, key=f"{layer}.{part}")

    def _fail(self, event: Scale, message: str, value: float | None, is_likely: bool) -> None:
        self.state.fail(
            "WGT224",
            event,
            message,
            layer=event.layer,
            key=f"{event.layer}.{event.part}",
            measured={"scale": value if value is not None and abs(value) <= 1e300 else str(value)[:40]},
            bound={"min": SMALLEST, "max": LARGEST},
            is_likely=is_likely,
        )


def _both(event: Scale) -> frozenset[str]:
    used = SIDES & set(event.used_on or ())
    return used if len(used) == len(SIDES) else frozenset()


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _numbers(item)


def _verdict(value: float) -> tuple[str | None, bool]:
    if isinstance(value, float) and not math.isfinite(value):
        return "not a finite number", False
    if value <= 0:
        return "zero" if value == 0 else "negative", False
    if not SMALLEST <= value <= LARGEST:
        return "implausible", True
    return None, False
