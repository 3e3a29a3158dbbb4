"""Report formats by name: a module of this package with a `render` function is a format."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import PurePath
from typing import Protocol, cast

import degarble.report as package
from degarble.errors import UsageError
from degarble.report.interface import Report

_RENDER = re.compile(r"^def render\(", re.MULTILINE)


class Render(Protocol):
    """What a format file provides, beside ENDINGS: the endings of file names that ask for it, such as `.json`."""

    def __call__(self, report: Report, *, detail: int = 0, colour: bool = False) -> str:
        """The whole report as text. `detail`: -1 quiet, 0 normal, 1 verbose."""


def formats() -> list[str]:
    """Names of all formats, told from the sources, so that none is loaded before it is used."""
    return sorted(entry.name for entry in pkgutil.iter_modules(package.__path__) if _is_format(entry))


def _is_format(entry: pkgutil.ModuleInfo) -> bool:
    spec = entry.module_finder.find_spec(entry.name, None)
    assert spec is not None and spec.loader is not None and hasattr(spec.loader, "get_source")
    return _RENDER.search(spec.loader.get_source(entry.name) or "") is not None


def writer(name: str) -> Render:
    """The render function of a format. Raises UsageError for an unknown one."""
    if name not in formats():
        raise UsageError(f"--format {name!r}: one of {', '.join(formats())}")
    return cast(Render, importlib.import_module(f"{package.__name__}.{name}").render)


def format_of(file: str) -> str | None:
    """The format that a file name asks for by its ending, if any does."""
    ending = PurePath(file).suffix.lower()
    for name in formats():
        if ending and ending in importlib.import_module(f"{package.__name__}.{name}").ENDINGS:
            return name
    return None
