"""`degarble stamp TARGET`: leave the result of a check beside the weights."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, require_fail_on, write_text


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("stamp")(stamp)


def stamp(
    target: Annotated[str, typer.Argument(help="Folder, .safetensors or .gguf file.")],
    reference: Annotated[
        str | None, typer.Option("--reference", help="A healthy copy to compare with.", metavar="DIR")
    ] = None,
    level: Annotated[str | None, typer.Option(help="header or content (default).", show_default=False)] = None,
    card: Annotated[bool, typer.Option("--card/--no-card", help="Also tag the model card.")] = True,
    fail_on: Annotated[
        str, typer.Option(help="As for check: what makes the status 1.", autocompletion=complete_fail_on)
    ] = "error",
) -> int:
    """Check, then write degarble-report.json and the tags of README.md. Weights are not touched; status as check's."""
    from degarble import api
    from degarble.cli.progress import terminal_progress
    from degarble.report.words import headline
    from degarble.stamp import plan

    require_fail_on(fail_on)
    report = api.check(target, reference=reference, level=level, progress=terminal_progress(False))
    planned = plan(target, report, card=card)
    for name, text in planned.files.items():
        write_text(text, str(planned.folder / name))
        sys.stdout.write(f"wrote {name}\n")
    if not planned.files:
        sys.stdout.write("nothing to write: the stamp is up to date\n")
    sys.stdout.write(f"{headline(report)}\n")
    return report.exit_code(fail_on)
