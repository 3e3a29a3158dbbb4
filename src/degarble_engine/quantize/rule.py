"""Rules of a recipe: which modules are kept in another scheme than the rest, or plain.

    rules:
      - targets: ["re:.*down_proj"]      names as in the file, or `re:` and a pattern that matches from the start
        scheme: W8A16
        group_size: 64
      - targets: ["model.layers.0.self_attn.q_proj"]
        scheme: none                     left plain

The first rule that names a module counts.
"""

from __future__ import annotations

import re

import msgspec

from degarble.errors import UsageError
from degarble.formats.interface import StoredModule

PLAIN = "none"
MAX_PATTERN = 1000


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule."""

    targets: tuple[str, ...]
    scheme: str
    """As of --scheme, or `none`."""
    group_size: int | None = None

    def names(self, module: StoredModule) -> bool:
        """Whether it is for a module."""
        return is_named(self.targets, module, "rules")


def is_named(targets: tuple[str, ...], module: StoredModule, option: str) -> bool:
    """Whether one of the targets is a module's name. Raises UsageError for a pattern that is none."""
    names = {module.name, module.canonical or module.name}
    return any(_matches(entry, name, option) for entry in targets for name in names)


def _matches(entry: str, name: str, option: str) -> bool:
    if not entry.startswith("re:"):
        return entry == name
    try:
        return re.match(entry[3 : 3 + MAX_PATTERN], name) is not None
    except re.error as error:
        raise UsageError(f"{option} {entry[:80]!r}: not a pattern: {error}") from None
