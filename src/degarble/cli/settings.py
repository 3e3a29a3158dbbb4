"""`degarble settings`: what is in force, and from where."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("settings")(settings)


def settings(
    config: Annotated[
        Path | None, typer.Option("--config", help="Read this file and no other.", metavar="FILE")
    ] = None,
    isolated: Annotated[bool, typer.Option("--isolated", help="Read no configuration file.")] = False,
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> int:
    """Show every option that `check` takes from files and environment: its value and where it was set."""
    from degarble.catalogue import pages
    from degarble.errors import UsageError
    from degarble.policy.configuration import load_configuration

    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    found = load_configuration({}, os.environ, folder=Path.cwd(), file=config, is_isolated=isolated)
    found.policy(pages)
    rows = [(one.name, one.value, one.origin) for one in found.settings.values()]
    for rule, (table, origin) in found.rules.items():
        rows += [(f"rules.{rule}.{key}", value, origin) for key, value in table.items()]
    if format == "json":
        import json

        document = [{"name": name, "value": value, "origin": origin} for name, value, origin in rows]
        sys.stdout.write(json.dumps(document, indent=2, default=list) + "\n")
        return 0
    width = max(len(name) for name, _, _ in rows)
    for name, value, origin in rows:
        sys.stdout.write(f"{name:<{width}}  {_shown(value):<24}  {origin}\n")
    return 0


def _shown(value: object) -> str:
    if value is None or value == ():
        return "-"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
