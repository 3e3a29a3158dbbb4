"""Workflow commands of GitHub Actions: an annotation for each cause, then the result in a line.

The job's summary is Markdown and goes to the file that GITHUB_STEP_SUMMARY names: the command line writes it there.
"""

from __future__ import annotations

from degarble.diagnosis import Cause
from degarble.finding import Finding, Role, Severity
from degarble.report.address import is_local, path_of
from degarble.report.interface import Report, Target
from degarble.report.visible import visible_report
from degarble.report.words import headline, measured, plural, severity_of, where, words_of
from degarble.runner import Outcome

ENDINGS = ()
COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "notice"}
MAX_COMMANDS = 100
"""A job shows ten annotations of a kind; the log may have more."""


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """One line a command. With detail also the notes."""
    shown = visible_report(report)
    lines = [] if shown.failure is None else [command("error", shown.failure, title="degarble could not check")]
    lines += [_cause(shown, cause) for cause in shown.causes[:MAX_COMMANDS]]
    if detail > 0:
        notes = [finding for finding in shown.findings if finding.role is Role.NOTE]
        lines += [_annotation(shown.target, note, note.message) for note in notes[:MAX_COMMANDS]]
    lines += [command("warning", f"{what}: {why}", title="not judged") for what, why in shown.unjudged.items()]
    lines += [
        command("error", result.reason or "", title=f"{result.rule} crashed, a bug of degarble")
        for result in shown.results
        if result.outcome is Outcome.CRASHED
    ]
    left = len(shown.causes) - MAX_COMMANDS
    if left > 0:
        lines.append(f"degarble: … and {plural(left, 'more cause')}")
    lines.append(_harmless(f"degarble: {shown.target.path}: {headline(shown)}"))
    return "\n".join(lines) + "\n"


def _cause(report: Report, cause: Cause) -> str:
    finding, words = cause.finding, words_of(report, cause.finding)
    parts = [finding.message, f"where: {where(finding)}"]
    if text := measured(finding):
        parts.append(f"measured: {text}")
    if cause.symptoms:
        rules = sorted({symptom.rule for symptom in cause.symptoms})
        parts.append(f"explains {plural(len(cause.symptoms), 'finding')}: {', '.join(rules[:20])}")
    if words.repair:
        parts.append(f"repair: {words.repair}")
    return _annotation(report.target, finding, "\n".join(parts))


def _annotation(target: Target, finding: Finding, message: str) -> str:
    place = finding.location
    properties = {"file": path_of(target, place.file)} if is_local(target) and place.file else {}
    if place.line is not None:
        properties["line"] = str(place.line)
    return command(
        COMMANDS[severity_of(finding)], message, **properties, title=f"{finding.rule} {finding.name}".strip()
    )


def command(name: str, message: str, **properties: str) -> str:
    """`::name key=value,key=value::message`, escaped as the runner reads it."""
    given = ",".join(f"{key}={_property(value)}" for key, value in properties.items() if value)
    return f"::{name} {given}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _harmless(line: str) -> str:
    """A plain line that the runner does not take for a command of the old form, `##[set-env]`."""
    return line.replace("##[", "##\\x5b").replace("\n", " ")
