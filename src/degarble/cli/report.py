"""`degarble report FILE.json`: a saved report in another format."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format, write_report


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("report")(report)


def report(
    file: Annotated[str, typer.Argument(help="A report saved with --format json; - is standard input.")],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text, json, sarif, junit, markdown, github or html; else by the ending of --output.",
            autocompletion=complete_format,
        ),
    ] = None,
    output: Annotated[
        list[str] | None, typer.Option("--output", "-o", help="Write it there; may be repeated.", metavar="FILE")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            help="Leave with the status that check would: error, warning, info or partial.",
            autocompletion=complete_fail_on,
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")] = False,
) -> int:
    """Show a saved JSON report again, in any format. Status 0, or that of --fail-on; 2 if it is no report."""
    import sys

    from degarble.cli.output import destinations, require_fail_on
    from degarble.report.load import load, read_report

    if fail_on is not None:
        require_fail_on(fail_on)
    places = destinations(format, output)
    saved = load(sys.stdin.buffer.read(), "standard input") if file == "-" else read_report(file)
    write_report(saved, places, detail=-1 if quiet else int(verbose))
    return 0 if fail_on is None else saved.exit_code(fail_on)
