"""How far a walk is, on standard error."""

from __future__ import annotations

import sys
import time


class WalkProgress:
    """One line of a terminal on standard error: layer, and time left. Silent where nobody is watching."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._is_watched = sys.stderr.isatty()

    def __call__(self, done: int, total: int) -> None:
        """After every layer."""
        if not self._is_watched:
            return
        now = time.monotonic()
        self._started = now if self._started is None else self._started
        left = f", {(now - self._started) / done * (total - done):.0f} s left" if done else ""
        sys.stderr.write(f"\rlayer {done}/{total}{left}   {chr(10) if done == total else ''}")
        sys.stderr.flush()
