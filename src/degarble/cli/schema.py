"""`degarble schema`: the JSON Schema of the report."""

from __future__ import annotations

import sys
from importlib.resources import files

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("schema")(schema)


def schema() -> int:
    """Print the JSON Schema of `--format json`."""
    sys.stdout.write((files("degarble.data") / "report.schema.json").read_text(encoding="utf-8"))
    return 0
