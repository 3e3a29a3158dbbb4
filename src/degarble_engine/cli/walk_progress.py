"""How far a walk is, on standard error."""

from __future__ import annotations

import sys
import time


class WalkProgress:
    """A line on standard error: layer, and time left; kept on one line of a terminal."""

    def __init__(self) -> None:
        self._started: float | None = None

    def __call__(self, done: int, total: int) -> None:
        """After every layer."""
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        left = f", {(now - self._started) / done * (total - done):.0f} s left" if done else ""
        is_terminal = sys.stderr.isatty()
        end = "\n" if done == total or not is_terminal else ""
        sys.stderr.write(f"{chr(13) if is_terminal else ''}layer {done}/{total}{left}   {end}")
        sys.stderr.flush()
