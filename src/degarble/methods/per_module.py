"""A table of module -> scheme as rules: one rule for each distinct scheme, so 46,000 modules stay a set look-up."""

from __future__ import annotations

from collections.abc import Mapping

from degarble.formats.scheme import Scheme
from degarble.methods.interface import ModuleRule


def rules_of(table: Mapping[str, Scheme | None], key: str) -> tuple[ModuleRule, ...]:
    """Rules that give every named module its scheme, exact names only."""
    members: dict[Scheme | None, set[str]] = {}
    for module, scheme in table.items():
        members.setdefault(scheme, set()).add(module)
    return tuple(
        ModuleRule(key=key, matches=frozenset(modules).__contains__, scheme=scheme)
        for scheme, modules in members.items()
    )
