"""Where results go: standard output or files (atomically), failures to standard error or into the one JSON document."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from degarble.errors import UsageError

if TYPE_CHECKING:
    from degarble.report.interface import Report

DEFAULT_FORMAT = "text"


class Destination(msgspec.Struct, frozen=True, kw_only=True):
    """One place for a report: a file, or standard output where `file` is None."""

    format: str
    file: str | None = None


def destinations(format: str | None, outputs: Sequence[str] | None) -> list[Destination]:
    """What `--format` and all `--output` ask for.

    With one output `--format` decides, then the ending of the file; with several the endings decide, and `--format` says
    what the others are. Raises UsageError where nothing says it.
    """
    from degarble.report.writers import format_of, writer

    writer(format or DEFAULT_FORMAT)
    files = list(outputs or [])
    if len(files) < 2:
        chosen = format or (format_of(files[0]) if files else None) or DEFAULT_FORMAT
        return [Destination(format=chosen, file=_file(files[0]) if files else None)]
    places = []
    for name in files:
        chosen = format_of(name) or format or (DEFAULT_FORMAT if _file(name) is None else "")
        if not chosen:
            raise UsageError(f"--output {name}: its ending names no format, and there is no --format")
        places.append(Destination(format=chosen, file=_file(name)))
    twice = {place.file for place in places if sum(other.file == place.file for other in places) > 1}
    if twice:
        raise UsageError(f"--output {next(iter(twice)) or '-'} is given twice")
    return places


def _file(name: str) -> str | None:
    return None if name == "-" else name


def write_report(report: Report, places: Sequence[Destination], *, detail: int = 0, keep_profile: bool = True) -> None:
    """Render and write every one, and the summary of a job on GitHub Actions if that format is among them.

    The profile is for the page that draws it; `keep_profile` leaves it in the JSON document as well.
    """
    from degarble.report.writers import writer

    for place in places:
        shown = report if keep_profile or place.format == "html" else replace(report, profile=None)
        colour = place.file is None and sys.stdout.isatty()
        write_text(writer(place.format)(shown, detail=detail, colour=colour), place.file)
    if any(place.format == "github" for place in places):
        _add_to_job_summary(writer("markdown")(report, detail=detail))


def _add_to_job_summary(text: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return
    try:
        with open(path, "a", encoding="utf-8") as stream:
            stream.write(text + "\n")
    except OSError as error:
        sys.stderr.write(f"degarble: GITHUB_STEP_SUMMARY {path}: {error.strerror}\n")


def complete_format(incomplete: str) -> list[str]:
    """For the shell: formats that begin so."""
    from degarble.report.writers import formats

    return [name for name in formats() if name.startswith(incomplete)]


def complete_fail_on(incomplete: str) -> list[str]:
    """For the shell: limits that begin so."""
    return [name for name in ("error", "warning", "info", "partial") if name.startswith(incomplete)]


def complete_rule(incomplete: str) -> list[str]:
    """For the shell: rule ids that begin so."""
    from degarble.catalogue import pages

    return [rule for rule in pages() if rule.startswith(incomplete.upper())]


def require_fail_on(value: str, origin: str = "--fail-on") -> None:
    """Raise UsageError for a limit that there is not; `origin` is what set it."""
    from degarble.report.interface import FAIL_ON

    if value not in FAIL_ON:
        raise UsageError(f"{origin} {value!r}: one of {', '.join(FAIL_ON)}")


def split_rules(values: Sequence[str] | None) -> tuple[str, ...]:
    """Ids and prefixes of an option that is repeated, holds several with commas, or both."""
    return tuple(part.strip() for value in values or () for part in value.split(",") if part.strip())


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether `--format json` was asked for, also on a command line that could not be parsed."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def write_failure(message: str, *, as_json: bool) -> None:
    """Say why nothing was done."""
    if as_json:
        from degarble.report.interface import Report, Target
        from degarble.report.json import render

        sys.stdout.write(render(Report(target=Target(path="", kind="unknown"), failure=message)))
    sys.stderr.write(f"degarble: {message}\n")


def write_failure_beside(report: Report, places: Sequence[Destination]) -> None:
    """Say on standard error why nothing was judged, where the report itself is not text before the reader's eyes."""
    if report.failure is not None and any(place.format != "text" or place.file for place in places):
        write_failure(report.failure, as_json=False)


def write_text(text: str, output: str | None) -> None:
    """To standard output, or to a file that appears complete or not at all."""
    if output is None or output == "-":
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
        return
    from degarble.whole_file import write_whole

    try:
        write_whole(Path(output), text.encode("utf-8"))
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}") from None
