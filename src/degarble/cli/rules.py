"""`degarble rules`: the table of rules."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("rules")(rules)


def rules(
    prefix: Annotated[str, typer.Argument(help="Only rules whose id starts so: QNT.")] = "",
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> int:
    """List every rule: id, name, severity, level, and the fault in one sentence."""
    from degarble.catalogue import pages
    from degarble.errors import UsageError

    chosen = [page for page in pages().values() if page.id.startswith(prefix.upper())]
    if not chosen:
        raise UsageError(f"no rule starts with {prefix!r}")
    if format == "json":
        import json

        keys = ("id", "name", "severity", "level", "summary")
        sys.stdout.write(json.dumps([{key: getattr(page, key) for key in keys} for page in chosen], indent=2) + "\n")
    elif format == "text":
        for page in chosen:
            line = f"{page.id}  {page.severity:<7}  {page.name:<38} {page.summary}"
            sys.stdout.write((line if len(line) <= 100 else line[:99] + "…") + "\n")
    else:
        raise UsageError(f"--format {format!r}: text or json")
    return 0
