"""Commands that other packages of the distribution add: modules with a `register(app)`, named by entry points.

The group is `degarble.commands`. A module must import neither torch nor anything else that takes long: `--help` loads it.
"""

from __future__ import annotations

from typing import Any

GROUP = "degarble.commands"


def joined_commands() -> list[Any]:
    """All such modules by name, each name once: an editable install can be listed twice."""
    from importlib import metadata  # reads the metadata of all that is installed, which most commands do not need

    found = {entry.name: entry for entry in metadata.entry_points(group=GROUP)}
    return [found[name].load() for name in sorted(found)]
