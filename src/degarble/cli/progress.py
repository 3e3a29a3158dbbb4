"""A progress bar on standard error for long work: bytes, bytes a second, time left. None where nobody is watching."""

from __future__ import annotations

import sys
import time
from typing import Any

from degarble.executor import Progress

PATIENCE_SECONDS = 1.0
"""Shorter work shows no bar."""


def terminal_progress(quiet: bool) -> Progress | None:
    """A bar if standard error is a terminal and the user did not ask for quiet."""
    return _Bar() if sys.stderr.isatty() and not quiet else None


class _Bar:
    """Called with (done, total); several pieces of work follow one another on the same line."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Move the bar; the last call of a piece of work removes it."""
        if done >= total:
            self._stop()
        elif self._bar is None and time.monotonic() - self._started > PATIENCE_SECONDS:
            self._start(total)
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)

    def _start(self, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Progress("reading values", *columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=total)
        self._bar.start()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None
        self._started = time.monotonic()
