"""Rules read from their source text, so that `rules` and `explain` import neither numpy nor any check."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """One rule as its file tells it."""

    id: str
    name: str
    severity: str
    level: str
    summary: str
    page: str
    family: str


@cache
def pages() -> dict[str, Page]:
    """Every rule by id."""
    found: dict[str, Page] = {}
    for path in _sources(files("degarble.checks")):
        for page in _pages_of(path.read_text(encoding="utf-8")):
            if page.page and page.id not in found:
                found[page.id] = page
    return dict(sorted(found.items()))


def _sources(folder: Traversable) -> Iterator[Traversable]:
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.is_dir() and entry.name != "__pycache__":
            yield from _sources(entry)
        elif entry.name.endswith(".py") and entry.name != "__init__.py":
            yield entry


def _pages_of(source: str) -> Iterator[Page]:
    for node in ast.parse(source).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "check":
                yield _page(node, call)


def _page(node: ast.FunctionDef, call: ast.Call) -> Page:
    assert isinstance(call.args[0], ast.Constant)
    rule = str(call.args[0].value)
    text = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    options = {keyword.arg: keyword.value for keyword in call.keywords}
    return Page(
        id=rule,
        name=node.name.replace("_", "-"),
        severity=_member(options.get("severity"), "error"),
        level=_member(options.get("level"), "header"),
        summary=" ".join(text.split("\n\n", 1)[0].split()),
        page=text,
        family=re.sub(r"\d", "", rule),
    )


def _member(node: ast.expr | None, default: str) -> str:
    """`Severity.WARNING` -> warning."""
    return node.attr.lower() if isinstance(node, ast.Attribute) else default
