"""`degarble trace`: verify a KV-cache trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format, complete_rule


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("trace")(trace)


def trace(
    files: Annotated[
        list[str],
        typer.Argument(
            help="A trace; or one for each rank; or a scheduler's and its worker's; or KV events, a canary's log, a profile.",
            metavar="FILE...",
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="Format of the files, which are recognised without it: degarble, kv-connector, kv-events, nsight-compute, "
            "nsight-systems, nsight-systems-csv or sglang-canary.",
            metavar="FORMAT",
        ),
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            help="Draw cache index beside position id, and who holds the blocks: .html, or .json for Perfetto.",
            metavar="OUT",
        ),
    ] = None,
    minimal: Annotated[
        Path | None,
        typer.Option(help="Write a small trace that still breaks the first cause's rule.", metavar="OUT"),
    ] = None,
    select: Annotated[
        list[str] | None, typer.Option(help="Only these rules (id or prefix).", autocompletion=complete_rule)
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.", autocompletion=complete_rule)] = None,
    fail_on: Annotated[
        str,
        typer.Option(help="error, warning, info or partial: what makes the status 1.", autocompletion=complete_fail_on),
    ] = "error",
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="text (default), json, sarif, junit, markdown, github or html.",
            autocompletion=complete_format,
        ),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", help="Write the report there; repeated, the endings choose.", metavar="FILE"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")] = False,
) -> int:
    """Find the first event of a KV-cache trace that breaks an invariant, and what follows from it."""
    from degarble import api
    from degarble.cli.output import destinations, require_fail_on, split_rules, write_failure_beside, write_report

    require_fail_on(fail_on)
    places = destinations(format, output)
    report = api.trace(files, form=form, select_rules=split_rules(select), ignore_rules=split_rules(ignore))
    if report.failure is None:
        if minimal is not None:
            _write_minimal(files, minimal)
        if timeline is not None:
            _write_timeline(files, timeline)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    write_failure_beside(report, places)
    return report.exit_code(fail_on)


def _write_minimal(files: list[str], out: Path) -> None:
    import sys

    from degarble.cli.output import write_text
    from degarble.errors import UsageError
    from degarble.trace.minimal import minimal_trace

    if len(files) != 1:
        raise UsageError("--minimal takes one trace file")
    found = minimal_trace(files[0])
    if found is None:
        sys.stderr.write("--minimal: the trace breaks no rule, nothing was written\n")
        return
    write_text("".join(line + "\n" for line in found.lines), str(out))
    sys.stderr.write(f"{out}: {len(found.lines)} of {found.num_events} events still break {found.rule}\n")


def _write_timeline(files: list[str], out: Path) -> None:
    from degarble.cli.output import write_text
    from degarble.errors import UsageError
    from degarble.trace.timeline import read_timeline

    if len(files) != 1:
        raise UsageError("--timeline takes one trace file")
    drawn = read_timeline(files[0])
    if out.suffix == ".json":
        from degarble.trace.perfetto import chrome_trace

        write_text(chrome_trace(drawn), str(out))
        return
    from degarble.trace.picture import page

    write_text(page(drawn), str(out))
