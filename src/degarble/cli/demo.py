"""`degarble demo`: see it work before reading anything."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    what: Annotated[
        str | None,
        typer.Argument(help="incident: the one that degarble comes from; needs the extras engine and serve."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Your own checkpoint instead.", metavar="DIR")] = None,
    fault: Annotated[str, typer.Option(help="The fault to plant: a name or a rule id.")] = "scale-missing",
    seed: Annotated[int, typer.Option(help="Chooses the place.")] = 0,
    format: Annotated[str, typer.Option("--format", help="text, or json for the report after planting.")] = "text",
) -> int:
    """A healthy model, a planted fault, a named cause, a repair and its proof. Nothing is written to disk."""
    if what is not None:
        return _incident(what, model, seed, format)
    from degarble.demo import demonstrate
    from degarble.repairing.fix import Outcome
    from degarble.repairing.text import render as render_plan
    from degarble.report.text import render

    shown = demonstrate(model, fault, seed)
    if format == "json":
        from degarble.report.json import render as render_json

        sys.stdout.write(render_json(shown.after))
        return 0 if shown.is_named else 1
    colour = sys.stdout.isatty()
    say = sys.stdout.write
    say("1. A healthy checkpoint, made by the field's own tool:\n\n" if model is None else "1. Your checkpoint:\n\n")
    say(render(shown.before, colour=colour))
    say(f"\n2. One fault is planted ({shown.fault}): {shown.summary}\n   at {shown.place.name()}\n\n")
    say("3. What degarble says:\n\n" + render(shown.after, colour=colour))
    say("\n4. What degarble fix does about it, with the healthy copy as reference:\n\n")
    say(render_plan(Outcome(plan=shown.plan, out=None)))
    say("\n5. The repaired copy:\n\n" + render(shown.plan.after, colour=colour))
    say(
        "\n"
        + ("The planted fault is the first cause.\n" if shown.is_named else "The planted fault was NOT named first.\n")
    )
    return 0 if shown.is_named else 1


NUM_CAUSES = 3
"""Of the incident."""


def _incident(what: str, model: str | None, seed: int, format: str) -> int:
    """0 if all three causes are named."""
    from degarble.cli.joined import joined_module
    from degarble.cli.output import Destination, write_report
    from degarble.errors import UsageError
    from degarble.report.writers import writer

    if what != "incident":
        raise UsageError(f"demo {what!r}: there is `degarble demo` and `degarble demo incident`")
    writer(format)
    report = joined_module("degarble.demos", what).run(model, seed, lambda line: sys.stderr.write(f"{line}\n"))
    write_report(report, [Destination(format=format)], keep_profile=False)
    return int(len(report.causes) != NUM_CAUSES)
