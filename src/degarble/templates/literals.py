"""What can be read in a template without running it: texts that some branch writes, names it asks for, hidden attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from jinja2 import nodes

READ_ONLY = ("Compare", "Test", "Getitem", "Call", "Filter", "Pair")
"""Expressions whose constants are looked for, not written: `'</think>' in content`, `content.split('<|x|>')`."""


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the text of a template."""

    written: tuple[str, ...] = ()
    """Template text and constants that stand where something is printed, in any branch."""
    names: frozenset[str] = frozenset()
    """Variables that are read."""
    hidden: tuple[tuple[str, int], ...] = ()
    """Attributes that begin with two underscores, and their lines."""


def read_source(tree: nodes.Template) -> TemplateSource:
    """Walk the tree once."""
    written: list[str] = []
    names: set[str] = set()
    hidden: list[tuple[str, int]] = []
    for node, is_read in _walk(tree):
        kind = type(node).__name__
        if kind == "Name" and node.ctx == "load":
            names.add(node.name)
        elif kind == "TemplateData" or (kind == "Const" and not is_read and isinstance(node.value, str)):
            written.append(node.data if kind == "TemplateData" else node.value)
        attribute = _attribute(node, kind)
        if attribute.startswith("__"):
            hidden.append((attribute, node.lineno))
    return TemplateSource(written=tuple(written), names=frozenset(names), hidden=tuple(hidden))


def _walk(tree: Any) -> Iterator[tuple[Any, bool]]:
    """Every node, and whether what it holds is only read. Without recursion: a chain of `+` is deep."""
    stack: list[tuple[Any, bool]] = [(tree, False)]
    while stack:
        node, is_read = stack.pop()
        yield node, is_read
        inner = is_read or type(node).__name__ in READ_ONLY
        stack += [(child, inner) for child in reversed(list(node.iter_child_nodes()))]


def _attribute(node: Any, kind: str) -> str:
    """`a.b`, `a['b']` and `a|attr('b')`."""
    if kind == "Getattr":
        return str(node.attr)
    if kind == "Getitem" and type(node.arg).__name__ == "Const":
        return str(node.arg.value)
    if kind == "Filter" and node.name == "attr" and node.args and type(node.args[0]).__name__ == "Const":
        return str(node.args[0].value)
    return ""
