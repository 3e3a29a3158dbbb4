"""`degarble replay`: the request of an incident once more."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    bundle: Annotated[str, typer.Argument(help="A folder that a guard of degarble serve left.", metavar="BUNDLE")],
    model: Annotated[str, typer.Option("--model", help="The checkpoint that was served.", metavar="DIR")],
    format: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> int:
    """Run an incident's request alone on a fresh engine: 0 the same ids, 1 others. Needs the extra `engine`."""
    from degarble.errors import MissingExtra, UsageError
    from degarble_engine.cli.library_log import only_errors

    if format not in ("text", "json"):
        raise UsageError(f"--format {format!r}: text or json")
    try:
        from degarble_engine.telemetry.replayed_bundle import replay_bundle
    except ModuleNotFoundError as error:
        raise MissingExtra(error) from None
    only_errors()
    found = replay_bundle(bundle, model)
    if format == "json":
        import msgspec

        document = {"schema_version": 1, **found.as_dict(), "told": found.told()}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n")
    else:
        sys.stdout.write(f"{found.told()}\n")
    return int(found.replayed.first_difference is not None)
