"""Options that several commands which run a model have, listed once."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format

Text = Annotated[list[str] | None, typer.Option("--text", help="Run on this text; may be repeated.")]
Prompts = Annotated[
    str | None, typer.Option(help="Texts: JSON lines with `text` or `prompt`, or one a line.", metavar="FILE")
]
FailOn = Annotated[
    str, typer.Option(help="error, warning, info or partial: what makes the status 1.", autocompletion=complete_fail_on)
]
Format = Annotated[
    str | None, typer.Option("--format", help="text (default), json, markdown …", autocompletion=complete_format)
]
Output = Annotated[list[str] | None, typer.Option("--output", "-o", help="Write the report there.", metavar="FILE")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each; no progress.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also notes.")]


def texts_of(text: list[str] | None, prompts: str | None) -> list[str] | None:
    """All texts that were given; None for none. Raises UsageError for a file that cannot be read."""
    from degarble_engine.numerics.tokens import read_prompts

    return [*(text or []), *(read_prompts(prompts) if prompts else [])] or None
