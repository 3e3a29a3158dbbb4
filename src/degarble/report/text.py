"""The report for people: headline, causes with what they explain, what to do, and what was not checked."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from degarble.diagnosis import Cause
from degarble.finding import Finding, Role, Severity
from degarble.report.ab import KIND as AB
from degarble.report.ab import ab_lines
from degarble.report.comparison import comparison_lines
from degarble.report.diagnosis_parts import parts
from degarble.report.interface import Report, Status
from degarble.report.kv_precision import KIND as KV_PRECISION
from degarble.report.kv_precision import kv_precision_lines
from degarble.report.kv_request import KIND as KV_REQUEST
from degarble.report.kv_request import kv_request_lines
from degarble.report.overflow import KIND as OVERFLOW
from degarble.report.overflow import overflow_lines
from degarble.report.quantize import KIND as QUANTIZE
from degarble.report.quantize import quantize_lines
from degarble.report.visible import visible_report
from degarble.report.words import accepted_note, headline, measured, plural, severity_of, waiver_notes, where, words_of
from degarble.runner import Outcome

ENDINGS = (".txt",)
TABLES = {
    OVERFLOW: overflow_lines,
    KV_PRECISION: kv_precision_lines,
    KV_REQUEST: kv_request_lines,
    QUANTIZE: quantize_lines,
    AB: ab_lines,
}
WIDTH = 100
MAX_FULL = 100
"""Causes told in full; further ones get a line each."""
MAX_LINES = 1_000
"""Lines of causes in brief, or of notes. Nobody reads more in a terminal; the JSON document has them all."""
MAX_SYMPTOMS = 20
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}
STATUS_STYLES = {Status.OK: "bold green", Status.PARTIAL: "bold yellow", Status.ERROR: "bold red"}


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """The whole report. `detail`: -1 one line a cause, 0 causes in full, 1 also notes and skips."""
    lines = _lines(visible_report(report), detail)
    if not colour:
        return "".join(line.plain + "\n" for line in lines)
    stream = io.StringIO()
    console = Console(file=stream, width=WIDTH, force_terminal=True, color_system="auto", highlight=False)
    for line in lines:
        console.print(line, soft_wrap=True)
    return stream.getvalue()


def _lines(report: Report, detail: int) -> Iterator[Text]:
    yield _headline(report)
    if report.failure is not None:
        yield from _paragraph(report.failure, indent="  ")
        return
    full = 0 if detail < 0 else MAX_FULL
    for cause in report.causes[:full]:
        yield from _cause(report, cause)
    if 0 < full < len(report.causes):
        yield Text("")
    yield from _briefs([cause.finding for cause in report.causes[full:]], "causes")
    if detail < 0:
        return
    notes = [finding for finding in report.findings if finding.role is Role.NOTE]
    if notes and detail == 0:
        yield Text(f"\n{plural(len(notes), 'note')} ({_ids(notes)}): shown with -v", style="dim")
    if notes and detail > 0:
        yield Text("")
        yield from _briefs(notes, "notes")
    if report.comparison is not None:
        yield Text("")
        lines = TABLES.get(str(report.comparison.get("kind")), comparison_lines)
        for line in lines(report.comparison):
            yield Text(line, style="dim")
    if report.diagnosis is not None:
        for part in parts(report.diagnosis):
            yield Text(f"\n{part.title}", style="bold")
            for line in part.lines:
                yield from _paragraph(line, indent="  ")
    yield from _coverage(report, detail)


def _headline(report: Report) -> Text:
    line = Text(report.target.path or "degarble", style="bold")
    if report.target.formats:
        line.append(f" ({', '.join(report.target.formats)})", style="dim")
    line.append(": ")
    found = STYLES[Severity.ERROR if report.summary["error"] else Severity.WARNING]
    return line.append(headline(report), style=STATUS_STYLES.get(report.status, found))


def _briefs(findings: Sequence[Finding], noun: str) -> Iterator[Text]:
    for finding in findings[:MAX_LINES]:
        line = Text(f"{finding.rule} ", style=STYLES[severity_of(finding)])
        yield line.append(finding.message, style="not bold default")
    if len(findings) > MAX_LINES:
        yield Text(f"… and {len(findings) - MAX_LINES:,} more {noun}: --format json lists all", style="dim")


def _cause(report: Report, cause: Cause) -> Iterator[Text]:
    finding = cause.finding
    severity = severity_of(finding)
    yield Text("")
    title = Text(f"{severity.value} {finding.rule} {finding.name}", style=STYLES[severity])
    yield title.append(f"  [{finding.confidence}]", style="dim")
    yield from _paragraph(finding.message, indent="  ")
    words = words_of(report, finding)
    for label, text in (
        ("where", where(finding)),
        ("measured", measured(finding)),
        ("why", words.story),
        ("you see", words.predicts),
        ("confirm", words.confirm),
        ("repair", words.repair),
    ):
        if text:
            yield from _field(label, text)
    for symptom in cause.symptoms[:MAX_SYMPTOMS]:
        yield from _paragraph(f"{symptom.rule} {symptom.message}", indent="  └ ", style="dim")
    if len(cause.symptoms) > MAX_SYMPTOMS:
        yield Text(f"  └ … and {plural(len(cause.symptoms) - MAX_SYMPTOMS, 'more symptom')}", style="dim")


def _field(label: str, text: str) -> Iterator[Text]:
    lines = textwrap.wrap(text, WIDTH - 12) or [""]
    yield Text(f"  {label:<9} ", style="dim").append(lines[0], style="not dim")
    for line in lines[1:]:
        yield Text(" " * 12 + line)


def _paragraph(text: str, *, indent: str, style: str = "") -> Iterator[Text]:
    room = WIDTH - len(indent)
    parts = [part for line in text.splitlines() for part in (textwrap.wrap(line, room, drop_whitespace=False) or [""])]
    for number, part in enumerate(parts):
        yield Text((indent if number == 0 else " " * len(indent)) + part, style=style)


def _ids(findings: list[Finding]) -> str:
    return ", ".join(sorted({finding.rule for finding in findings}))


def _coverage(report: Report, detail: int) -> Iterator[Text]:
    summary = report.summary
    parts = [f"{summary['ran']} rules checked"]
    if summary["skipped"]:
        parts.append(f"{summary['skipped']} not applicable or without input{' (-v lists them)' * (detail < 1)}")
    if summary["crashed"]:
        parts.append(f"{summary['crashed']} crashed (our bug)")
    if note := accepted_note(report):
        parts.append(note)
    yield Text("\n" + ", ".join(parts), style="dim")
    for note in waiver_notes(report):
        label, _, rest = note.partition(": ")
        yield Text(f"{label}: ", style="bold yellow").append(rest, style="not bold default")
    for what, reason in report.unjudged.items():
        yield Text("not judged: ", style="bold yellow").append(f"{what}: {reason}", style="not bold default")
    for result in report.results:
        if result.outcome is Outcome.CRASHED:
            yield Text(f"{result.rule} crashed: {result.reason}", style="bold red")
        elif result.outcome is Outcome.SKIPPED and detail > 0:
            yield Text(f"{result.rule} skipped: {result.reason}", style="dim")
