"""`degarble probe`: ask a live endpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from degarble.cli.report_flags import FailOn, Format, Ignore, Output, Quiet, Select, Verbose

EPILOG = """Asks about 120 short questions, greedily. Nothing of the endpoint is changed. Keys are read from the variables that
the options name, sent to that endpoint only, and appear in no report."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("probe", epilog=EPILOG)(probe)


def probe(
    url: Annotated[str, typer.Argument(help="Address of an OpenAI-compatible endpoint, with or without /v1.")],
    model: Annotated[str | None, typer.Option(help="Model to ask; the first one that is listed otherwise.")] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(help="Checkpoint whose tokenizer and template it is to use.", metavar="TARGET"),
    ] = None,
    reference: Annotated[
        str | None, typer.Option(help="A healthy endpoint that is asked the same.", metavar="URL2")
    ] = None,
    budget: Annotated[str, typer.Option(help="Time for all questions: 60s, 5m.")] = "60s",
    api_key_env: Annotated[
        str | None, typer.Option(help="Environment variable with the endpoint's key.", metavar="NAME")
    ] = None,
    reference_api_key_env: Annotated[
        str | None, typer.Option(help="The same for the reference.", metavar="NAME")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other lists of words.")] = 0,
    redact: Annotated[bool, typer.Option("--redact", help="Leave contents of answers out of the report.")] = False,
    select: Select = None,
    ignore: Ignore = None,
    fail_on: FailOn = "error",
    format: Format = None,
    output: Output = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> int:
    """Find out from outside what is wrong with a live endpoint: NaN, loops, mojibake, counts, batches, caches, streams."""
    from degarble import endpoint
    from degarble.cli.output import destinations, require_fail_on, split_rules, write_failure_beside, write_report
    from degarble.probe.connection import Limits

    require_fail_on(fail_on)
    places = destinations(format, output)
    report = endpoint.probe(
        url,
        model=model,
        tokenizer=tokenizer,
        reference=reference,
        api_key=secret(api_key_env),
        reference_api_key=secret(reference_api_key_env),
        limits=Limits(budget_seconds=seconds(budget)),
        seed=seed,
        redact=redact,
        select_rules=split_rules(select),
        ignore_rules=split_rules(ignore),
    )
    write_report(report, places, detail=-1 if quiet else int(verbose))
    write_failure_beside(report, places)
    return report.exit_code(fail_on)


def seconds(text: str) -> float:
    """`60s`, `5m` or a number of seconds. Raises UsageError."""
    from degarble.errors import UsageError

    number, unit = text.strip(), 1.0
    if number[-1:] in ("s", "m"):
        number, unit = number[:-1], 60.0 if number[-1] == "m" else 1.0
    if not number.replace(".", "", 1).isdecimal() or not number.isascii() or not 1 <= float(number) * unit <= 86_400:
        raise UsageError(f"--budget {text!r}: 1 second to 24 hours, such as 60s or 5m")
    return float(number) * unit


def secret(variable: str | None) -> str | None:
    """The value of a variable. Raises UsageError, without the value, where it is not set."""
    import os

    from degarble.errors import UsageError

    if variable is None:
        return None
    found = os.environ.get(variable, "").strip()
    if not found:
        raise UsageError(f"--api-key-env {variable}: this environment variable is not set, or empty")
    return found
