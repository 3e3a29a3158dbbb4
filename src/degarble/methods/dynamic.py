"""GPTQModel's `dynamic` table: regular expressions that give single modules a scheme of their own, or none.

    "-:.*mlp\\.gate$": {}                               stays plain
    "+:.*down_proj.*": {"bits": 8, "group_size": 32}    other than the rest; no sign means `+:`

The first key that matches a name from its start decides. Source: GPTQModel `quantization/config.py` (`dynamic_get`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from degarble.engines.pattern_set import Pattern
from degarble.formats.scheme import Scheme
from degarble.methods.fields import Fields
from degarble.methods.interface import ModuleRule, SkipList
from degarble.methods.patterns import pattern_rules


class Dynamic(msgspec.Struct, frozen=True, kw_only=True):
    """What the table says."""

    rules: tuple[ModuleRule, ...] = ()
    skips: tuple[SkipList, ...] = ()
    unusable: list[str]
    """Keys that are no regular expression or take too long; grows while names are matched."""


def read_dynamic(fields: Fields, override: Callable[[Fields], Scheme]) -> Dynamic:
    """Read the table. `override` makes a scheme of the keys of one entry, defaults filled in."""
    table, unusable = fields.raw.get("dynamic"), list[str]()
    if not table:
        return Dynamic(unusable=unusable)
    where, entries = fields.path("dynamic"), fields.objects("dynamic")
    patterns: list[tuple[Pattern, Scheme | None]] = []
    for name, values in entries:
        scheme = None if name.startswith("-:") else override(values)
        patterns.append((Pattern(name, name.removeprefix("-:").removeprefix("+:")), scheme))
    skips = (SkipList(file=fields.file, key=where, entries=tuple(name for name, _ in entries)),) if entries else ()
    return Dynamic(rules=pattern_rules(where, patterns, unusable), skips=skips, unusable=unusable)
