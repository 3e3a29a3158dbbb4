"""Puts the commands together and turns every way of ending into a status: 0, 1 or 2, and never a traceback."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import typer

from degarble.cli.joined import joined_commands
from degarble.cli.output import wants_json, write_failure
from degarble.errors import DegarbleError

CLICK_EXCEPTION: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""Base of all usage errors; newer typer carries a click of its own, so it cannot be imported by name."""

COMMANDS = (
    "check",
    "trace",
    "probe",
    "diagnose",
    "fix",
    "report",
    "stamp",
    "explain",
    "rules",
    "schema",
    "settings",
    "show",
    "inject",
    "demo",
    "verify-repack",
    "tokenizer",
    "kv",
    "help",
)
"""Each in the module of its name, in the order of `--help`."""


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """All commands, or the one that is called: to put the others together takes longer than many a command."""
    app = typer.Typer(
        name="degarble",
        help="Finds out why a quantised LLM talks garbage.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback()(main)
    called = arguments[0] if arguments else ""
    for name in (called,) if called in COMMANDS else COMMANDS:
        import_module(f"degarble.cli.{name.replace('-', '_')}").register(app)
    if called not in COMMANDS:
        for command in joined_commands():
            command.register(app)
    return app


def main(
    version: bool = typer.Option(False, "--version", "-V", help="Print the version.", is_eager=True),
) -> None:
    """Finds out why a quantised LLM talks garbage."""
    if version:
        from degarble.version import __version__

        typer.echo(f"degarble {__version__}")
        raise typer.Exit


INTERRUPTED = 130
"""What typer makes of Ctrl-C; no command of ours ends with it."""


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Everything unexpected is status 2, with one JSON document if that was asked for."""
    gc.set_threshold(200_000)  # one short-lived process over 100,000 small objects: collecting them gains nothing
    try:
        status = application(arguments)(args=list(arguments) or ["--help"], prog_name="degarble", standalone_mode=False)
        if status == INTERRUPTED:
            return _fail(arguments, "interrupted")
        return status if isinstance(status, int) else 0
    except typer.Exit as end:
        return end.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return _fail(arguments, "interrupted")
    except CLICK_EXCEPTION as usage:
        return _fail(arguments, usage.format_message())
    except DegarbleError as error:
        return _fail(arguments, str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:  # the last line of defence: our bug must not look like a finding
        return _fail(arguments, f"degarble failed, which is a bug of ours: {type(error).__name__}: {error}", bug=True)


def _fail(arguments: Sequence[str], message: str, *, bug: bool = False) -> int:
    if bug and "-v" in arguments:
        import traceback

        traceback.print_exc()
    write_failure(message, as_json=wants_json(arguments))
    return 2
