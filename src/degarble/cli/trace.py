"""`degarble trace`: verify a KV-cache trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.report_flags import FailOn, Format, Ignore, Output, Quiet, Select, Verbose

if TYPE_CHECKING:
    from degarble.report.interface import Report
    from degarble.trace.replay import Verdict


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
            help="Write cache index beside position id, and who holds the blocks, for Perfetto (.json); .html: as --html.",
            metavar="OUT",
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Write the report as one offline page, with blocks held over time, violations and positions drawn.",
            metavar="OUT",
        ),
    ] = None,
    minimal: Annotated[
        Path | None,
        typer.Option(help="Write a small trace that still breaks the first cause's rule.", metavar="OUT"),
    ] = None,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Find the first event of a KV-cache trace that breaks an invariant, and what follows from it."""
    from degarble import api
    from degarble.cli.output import destinations, require_fail_on, split_rules, write_failure_beside, write_report

    require_fail_on(fail_on)
    places = destinations(format, output)
    report, verdict = api.traced(files, form=form, select_rules=split_rules(select), ignore_rules=split_rules(ignore))
    if verdict is not None and report.failure is None:
        _write_extras(files, report, verdict, minimal, timeline, html)
    write_report(report, places, detail=-1 if quiet else int(verbose))
    write_failure_beside(report, places)
    return report.exit_code(fail_on)


def _write_extras(
    files: list[str], report: Report, verdict: Verdict, minimal: Path | None, timeline: Path | None, html: Path | None
) -> None:
    """What is drawn or reduced, which takes one file of the trace schema."""
    from degarble.errors import UsageError
    from degarble.trace_readers.source import recognised

    asked = [name for name, out in (("minimal", minimal), ("timeline", timeline), ("html", html)) if out is not None]
    if not asked:
        return
    if len(files) != 1 or recognised(files[0]) is not None:
        raise UsageError(f"--{asked[0]} takes one file, in the trace schema")
    if minimal is not None:
        _write_minimal(files[0], minimal)
    if timeline is not None and timeline.suffix == ".json":
        _write_timeline(files[0], timeline, verdict)
    for out in (html, timeline):
        if out is not None and out.suffix != ".json":
            _write_page(files[0], out, report, verdict)


def _write_minimal(path: str, out: Path) -> None:
    import sys

    from degarble.cli.output import write_text
    from degarble.trace.minimal import minimal_trace

    found = minimal_trace(path)
    if found is None:
        sys.stderr.write("--minimal: the trace breaks no rule, nothing was written\n")
        return
    write_text("".join(line + "\n" for line in found.lines), str(out))
    sys.stderr.write(f"{out}: {len(found.lines)} of {found.num_events} events still break {found.rule}\n")


def _write_timeline(path: str, out: Path, verdict: Verdict) -> None:
    from degarble.cli.output import write_text
    from degarble.trace.perfetto import chrome_trace
    from degarble.trace.timeline import read_timeline

    write_text(chrome_trace(read_timeline(path, verdict)), str(out))


def _write_page(path: str, out: Path, report: Report, verdict: Verdict) -> None:
    from degarble.cli.output import write_text
    from degarble.report.html import render

    write_text(render(report, pictures=drawn(path, verdict)), str(out))


def drawn(path: str, verdict: Verdict) -> str:
    """Blocks held over time, and positions beside cache indexes. Raises DegarbleError for a trace of another schema."""
    from degarble.report.trace_picture import pictures
    from degarble.trace.occupancy import read_occupancy
    from degarble.trace.timeline import read_timeline

    return pictures(read_occupancy(path, verdict), read_timeline(path, verdict))
