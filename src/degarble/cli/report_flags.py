"""Options of commands that judge something other than a checkpoint and write a report, listed once."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format, complete_rule

Select = Annotated[
    list[str] | None, typer.Option(help="Only these rules (id or prefix).", autocompletion=complete_rule)
]
Ignore = Annotated[list[str] | None, typer.Option(help="Not these rules.", autocompletion=complete_rule)]
FailOn = Annotated[
    str, typer.Option(help="error, warning, info or partial: what makes the status 1.", autocompletion=complete_fail_on)
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format", help="text (default), json, sarif, junit, markdown, github or html.", autocompletion=complete_format
    ),
]
Output = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", help="Write the report there; repeated, the endings choose.", metavar="FILE"),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")]
