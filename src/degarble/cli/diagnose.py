"""`degarble diagnose`: what one has in, the cause out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from degarble.cli.report_flags import FailOn, Format, Output, Quiet, Verbose

if TYPE_CHECKING:
    from degarble.diagnosing.inputs import DiagnosisInputs
    from degarble.report.interface import Report

EPILOG = """Runs what the inputs allow, the most telling for its time first, repairs a copy in memory, and checks that again.
Nothing given is changed. Without a finding there is no cause, only what to find out next."""
EXPERIMENTS = "degarble.experiments"
FILES = ("incident.html", "incident.md", "incident.json")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("diagnose", epilog=EPILOG)(diagnose)


def diagnose(
    target: Annotated[
        str | None, typer.Argument(help="The checkpoint: folder, .safetensors, .gguf or hf:org/name.")
    ] = None,
    reference: Annotated[str | None, typer.Option(help="A healthy copy of it.", metavar="DIR")] = None,
    endpoint: Annotated[str | None, typer.Option(help="An OpenAI-compatible endpoint.", metavar="URL")] = None,
    reference_endpoint: Annotated[
        str | None, typer.Option(help="A healthy one that is asked the same.", metavar="URL2")
    ] = None,
    trace: Annotated[list[str] | None, typer.Option(help="A KV-cache trace; repeatable.", metavar="FILE")] = None,
    incident: Annotated[
        str | None, typer.Option(help="A folder that a guard of degarble serve left.", metavar="DIR")
    ] = None,
    symptom: Annotated[str | None, typer.Option(help="What is seen, in English or Chinese.", metavar="TEXT")] = None,
    budget: Annotated[str, typer.Option(help="Time for all of it: 60s, 5m.")] = "5m",
    model: Annotated[str | None, typer.Option(help="Model to ask the endpoint for.")] = None,
    engine: Annotated[str | None, typer.Option(help="Engine and version, where it does not tell: vllm@0.11.0.")] = None,
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the endpoint's key.", metavar="NAME")
    ] = None,
    redact: Annotated[bool, typer.Option("--redact", help="Leave contents of answers out of the report.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Also write the report there: incident.html, .md and .json.", metavar="DIR")
    ] = None,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Find out why a deployment talks garbage: checkpoint, endpoint, trace, incident or words in, causes with proof out."""
    from degarble.cli.output import destinations, require_fail_on, write_failure_beside, write_report
    from degarble.cli.probe import seconds, secret
    from degarble.diagnosing import DiagnosisInputs
    from degarble.diagnosing import diagnose as run

    require_fail_on(fail_on)
    places = destinations(format, output)
    inputs = DiagnosisInputs(
        target=target,
        reference=reference,
        endpoint=endpoint,
        reference_endpoint=reference_endpoint,
        trace=tuple(trace or ()),
        incident=incident,
        symptom=symptom,
        budget_seconds=seconds(budget),
        model=model,
        engine=engine,
        api_key=secret(api_key_env),
        redact=redact,
        joined=joined_experiments(),
    )
    report = run(inputs)
    write_report(report, places, detail=-1 if quiet else int(verbose), keep_profile=False)
    write_failure_beside(report, places)
    if out is not None:
        write_pages(report, inputs, out)
    return report.exit_code(fail_on)


def joined_experiments() -> dict[str, Callable[[DiagnosisInputs], Report]]:
    """What installed packages add; each is a module with `run(inputs) -> Report` that imports torch only when it runs."""
    from degarble.cli.joined import joined_commands

    return {module.NAME: module.run for module in joined_commands(EXPERIMENTS)}


def write_pages(report: Report, inputs: DiagnosisInputs, out: Path) -> None:
    """The page, the text and the document. Raises UsageError where the folder cannot be written."""
    from degarble.cli.output import write_text
    from degarble.errors import UsageError
    from degarble.report import html, json, markdown

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: {error.strerror}") from None
    page, text, document = (str(out / name) for name in FILES)
    write_text(html.render(report, pictures=_pictures(inputs)), page)
    write_text(markdown.render(report), text)
    write_text(json.render(report), document)


def _pictures(inputs: DiagnosisInputs) -> str:
    """Of the one trace that was given, or that the incident kept."""
    path = inputs.trace[0] if len(inputs.trace) == 1 else None
    if path is None and inputs.incident is not None:
        kept = Path(inputs.incident) / "trace.jsonl"
        path = str(kept) if kept.is_file() else None
    if path is None:
        return ""
    from degarble import api
    from degarble.cli.trace import drawn
    from degarble.errors import DegarbleError

    try:
        _, verdict = api.traced([path])
        return "" if verdict is None else drawn(path, verdict)
    except DegarbleError:
        return ""  # a foreign format, which has no such picture; the report says what it holds
