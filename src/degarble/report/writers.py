"""Report formats by name: a module of this package with a `render` function is a format."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Protocol, cast

import degarble.report as package
from degarble.errors import UsageError
from degarble.report.interface import Report


class Render(Protocol):
    """What a format file provides."""

    def __call__(self, report: Report, *, detail: int = 0, colour: bool = False) -> str:
        """The whole report as text. `detail`: -1 quiet, 0 normal, 1 verbose."""


NOT_FORMATS = frozenset({"interface", "writers", "profile"})


def formats() -> list[str]:
    """Names of all formats."""
    return sorted(entry.name for entry in pkgutil.iter_modules(package.__path__) if entry.name not in NOT_FORMATS)


def writer(name: str) -> Render:
    """The render function of a format. Raises UsageError for an unknown one."""
    if name not in formats():
        raise UsageError(f"--format {name!r}: one of {', '.join(formats())}")
    return cast(Render, importlib.import_module(f"{package.__name__}.{name}").render)
