"""`degarble check`: the main job."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from degarble.cli.flags import NO_FLAGS, ConfigurationFlags, with_configuration
from degarble.cli.output import complete_format


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("check")(check)


@with_configuration()
def check(
    target: Annotated[str, typer.Argument(help="Folder, .safetensors or .gguf file, or hf:org/name\\[@revision].")],
    reference: Annotated[
        str | None, typer.Option("--reference", help="A healthy copy to compare with.", metavar="DIR")
    ] = None,
    flags: ConfigurationFlags = NO_FLAGS,
    sample: Annotated[bool, typer.Option("--sample", help="A quick look at part of the values; says partial.")] = False,
    exhaustive: Annotated[
        bool,
        typer.Option(
            "--exhaustive",
            help="Statistics of all values, not of a sample; modules are compared in pairs by more neurons, in all experts.",
        ),
    ] = False,
    cache: Annotated[str | None, typer.Option(help="Keep value profiles there between runs.", metavar="DIR")] = None,
    profile: Annotated[bool, typer.Option("--profile", help="Put the value statistics into the JSON report.")] = False,
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
    write_baseline: Annotated[
        Path | None, typer.Option(help="Write what is found as a baseline, and end with 0.", metavar="FILE")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only causes, one line each.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also notes, skips and their reasons.")] = False,
) -> int:
    """Find what is wrong with a checkpoint, from its headers, small files and values, without a GPU."""
    from degarble import api
    from degarble.cli.output import destinations, require_fail_on, write_failure_beside, write_report
    from degarble.cli.progress import terminal_progress
    from degarble.policy.baseline import write_baseline as save_baseline
    from degarble.registry import rules
    from degarble.report.interface import Status

    settings = flags.load(cache=cache)
    threshold = settings.get("fail-on")
    require_fail_on(threshold, settings.settings["fail-on"].origin)
    places = destinations(format or (None if output else settings.get("format")), output)
    logging.basicConfig(level=logging.DEBUG if verbose else logging.WARNING, stream=sys.stderr)
    report = api.check(
        target,
        reference=reference,
        level=settings.get("level"),
        engine=settings.get("engine"),
        tensor_parallel=settings.get("tp"),
        expert_parallel=settings.get("ep"),
        dtype=settings.get("dtype"),
        select_rules=settings.get("select"),
        ignore_rules=(*settings.get("ignore"), *settings.switched_off),
        known_issues=settings.get("known-issues"),
        sample=sample,
        exhaustive=exhaustive,
        cache=settings.get("cache"),
        profile=profile or any(place.format == "html" for place in places),
        progress=terminal_progress(quiet),
        policy=settings.policy(rules),
    )
    write_report(report, places, detail=-1 if quiet else int(verbose), keep_profile=profile)
    write_failure_beside(report, places)
    if write_baseline is not None and report.status is not Status.ERROR:
        number = save_baseline(write_baseline, (*report.findings, *report.accepted))
        sys.stderr.write(f"{write_baseline}: {number} findings\n")
        return 0
    return report.exit_code(threshold)
