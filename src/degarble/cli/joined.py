"""Commands that other packages of the distribution add: modules with a `register(app)`, named by entry points.

The group is `degarble.commands`. A module must import neither torch nor anything else that takes long: `--help` loads it.
"""

from __future__ import annotations

from typing import Any

from degarble.errors import UsageError

GROUP = "degarble.commands"


def joined_commands(group: str = GROUP) -> list[Any]:
    """All such modules of a group by name, each name once: an editable install can be listed twice."""
    found = _entries(group)
    return [found[name].load() for name in sorted(found)]


def joined_module(group: str, name: str) -> Any:
    """What another package adds to one command. Raises UsageError where none is installed."""
    found = _entries(group).get(name)
    if found is None:
        raise UsageError(f"{name}: no installed package runs models for it: pip install 'degarble[engine]'")
    return found.load()


def _entries(group: str) -> dict[str, Any]:
    from importlib import metadata  # reads the metadata of all that is installed, which most commands do not need

    return {entry.name: entry for entry in metadata.entry_points(group=group)}
