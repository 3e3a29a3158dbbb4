"""`degarble help TOPIC`: what belongs to no single command. A topic is a page in `data/help`."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import Annotated

import typer

from degarble.errors import UsageError


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("help")(help)


def topics() -> dict[str, str]:
    """Name of each topic and its page."""
    pages = (files("degarble.data") / "help").iterdir()
    found = {page.name.removesuffix(".md"): page for page in pages if page.name.endswith(".md")}
    return {name: found[name].read_text(encoding="utf-8") for name in sorted(found)}


def complete_topic(incomplete: str) -> list[str]:
    """For the shell: topics that begin so."""
    return [name for name in topics() if name.startswith(incomplete)]


def help(
    topic: Annotated[
        str | None, typer.Argument(help="exit-codes, formats …; none lists them.", autocompletion=complete_topic)
    ] = None,
) -> int:
    """Pages about exit codes, formats, severities and the environment. Commands have their own `--help`."""
    pages = topics()
    if topic is None:
        for name, page in pages.items():
            sys.stdout.write(f"{name:<12} {page.splitlines()[0].removeprefix('# ')}\n")
        return 0
    if topic not in pages:
        raise UsageError(f"no help topic is called {topic!r}: one of {', '.join(pages)}")
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.markdown import Markdown

        Console(width=min(100, Console().width)).print(Markdown(pages[topic]))
    else:
        sys.stdout.write(pages[topic])
    return 0
