"""`degarble check`: the main job."""

from __future__ import annotations

import logging
import sys
from typing import Annotated

import typer

from degarble.cli.output import complete_fail_on, complete_format, complete_rule, write_failure


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


def check(
    target: Annotated[str, typer.Argument(help="Folder, .safetensors or .gguf file, or hf:org/name\\[@revision].")],
    reference: Annotated[
        str | None, typer.Option("--reference", help="A healthy copy to compare with.", metavar="DIR")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="header: headers and small files; content: values too (default, but header for hf:).",
            show_default=False,
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="Judge for one engine: vllm, sglang, transformers … \\[@VERSION].")
    ] = None,
    tp: Annotated[int | None, typer.Option("--tp", help="Tensor-parallel degree.")] = None,
    ep: Annotated[int | None, typer.Option("--ep", help="Expert-parallel degree.")] = None,
    dtype: Annotated[str | None, typer.Option(help="The dtype it is served in.")] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(help="Only these rules (id or prefix, comma or repeated).", autocompletion=complete_rule),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules.", autocompletion=complete_rule)] = None,
    known_issues: Annotated[str | None, typer.Option(help="A newer known-issues file.", metavar="FILE")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="A quick look at part of the values; says partial.")] = False,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Statistics of all values, not of a sample.")
    ] = False,
    cache: Annotated[str | None, typer.Option(help="Keep value profiles there between runs.", metavar="DIR")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Put the value statistics into the JSON report.")] = False,
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
        typer.Option(
            "--output",
            "-o",
            help="Write the report there; repeated, the endings choose formats: .json .sarif .xml .md .html .txt.",
            metavar="FILE",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")] = False,
) -> int:
    """Find what is wrong with a checkpoint, from its headers, small files and values, without a GPU."""
    from degarble import api
    from degarble.cli.output import destinations, write_report
    from degarble.cli.progress import terminal_progress
    from degarble.errors import UsageError
    from degarble.report.interface import FAIL_ON

    if fail_on not in FAIL_ON:
        raise UsageError(f"--fail-on {fail_on!r}: one of {', '.join(FAIL_ON)}")
    places = destinations(format, output)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, stream=sys.stderr)
    report = api.check(
        target,
        reference=reference,
        level=level,
        engine=engine,
        tensor_parallel=tp,
        expert_parallel=ep,
        dtype=dtype,
        select_rules=_split(select),
        ignore_rules=_split(ignore),
        known_issues=known_issues,
        sample=sample,
        exhaustive=exhaustive,
        cache=cache,
        profile=profile or any(place.format == "html" for place in places),
        progress=terminal_progress(quiet),
    )
    write_report(report, places, detail=-1 if quiet else int(verbose), keep_profile=profile)
    if report.failure is not None and any(place.format != "text" or place.file for place in places):
        write_failure(report.failure, as_json=False)
    return report.exit_code(fail_on)


def _split(values: list[str] | None) -> list[str]:
    return [part.strip() for value in values or [] for part in value.split(",") if part.strip()]
