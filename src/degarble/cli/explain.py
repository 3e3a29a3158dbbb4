"""`degarble explain RULE`: the page of a rule, which is its check's docstring."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from degarble.cli.output import complete_rule
from degarble.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain")(explain)


def explain(
    rule: Annotated[
        str, typer.Argument(help="A rule id or name: CKP101, shard-truncated.", autocompletion=complete_rule)
    ],
) -> int:
    """Say what a rule looks for, why its fault makes garbage, how to confirm and how to repair it."""
    from degarble.catalogue import pages

    wanted = rule.strip()
    page = pages().get(wanted.upper()) or next((p for p in pages().values() if p.name == wanted.lower()), None)
    if page is None:
        near = [known for known in pages() if known.startswith(wanted.upper()[:3])]
        hint = f"; rules of that family: {', '.join(near)}" if near else ""
        raise UsageError(f"no rule is called {rule!r}: `degarble rules` lists them{hint}")
    text = f"# {page.id} {page.name}\n\n{page.severity}, {page.level} level\n\n{page.page}\n"
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console(width=min(100, Console().width)).print(Markdown(text))
    else:
        sys.stdout.write(text)
    return 0
