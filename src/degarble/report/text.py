"""The report for people: headline, causes with what they explain, what to do, and what was not checked."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from degarble.diagnosis import Cause
from degarble.finding import MAX_ALSO, Finding, Measure, Role, Severity
from degarble.registry import rules
from degarble.report.interface import Report, Status
from degarble.runner import Outcome

WIDTH = 100
STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "cyan"}
HEADLINES = {
    Status.OK: ("bold green", "nothing wrong found"),
    Status.PARTIAL: ("bold yellow", "nothing wrong found, but not everything could be judged"),
    Status.ERROR: ("bold red", "could not be checked"),
}


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """The whole report. `detail`: -1 one line a cause, 0 causes in full, 1 also notes and skips."""
    stream = io.StringIO()
    console = Console(
        file=stream, width=WIDTH, force_terminal=colour, color_system="auto" if colour else None, highlight=False
    )
    for line in _lines(report, detail):
        console.print(line, soft_wrap=True)
    return stream.getvalue()


def _lines(report: Report, detail: int) -> Iterator[Text]:
    yield _headline(report)
    if report.failure is not None:
        yield Text(f"  {report.failure}")
        return
    for cause in report.causes:
        yield from _brief(cause.finding) if detail < 0 else _cause(cause)
    if detail < 0:
        return
    notes = [finding for finding in report.findings if finding.role is Role.NOTE]
    if notes and detail == 0:
        yield Text(f"\n{len(notes)} note{'s' * (len(notes) > 1)} ({_ids(notes)}): shown with -v", style="dim")
    for note in notes if detail > 0 else ():
        yield Text("")
        yield from _brief(note)
    yield from _coverage(report, detail)


def _headline(report: Report) -> Text:
    line = Text(report.target.path or "degarble", style="bold")
    if report.target.formats:
        line.append(f" ({', '.join(report.target.formats)})", style="dim")
    line.append(": ")
    if report.status is Status.FINDINGS:
        counts = [f"{n} {kind}{'s' * (n != 1)}" for kind in ("error", "warning") if (n := report.summary[kind])]
        causes = len(report.causes)
        style = STYLES[Severity.ERROR if report.summary["error"] else Severity.WARNING]
        return line.append(f"{' and '.join(counts)}, {causes} cause{'s' * (causes != 1)}", style=style)
    style, words = HEADLINES[report.status]
    return line.append(words, style=style)


def _brief(finding: Finding) -> Iterator[Text]:
    severity = finding.severity or Severity.ERROR
    line = Text(f"{finding.rule} ", style=STYLES[severity])
    yield line.append(finding.message, style="not bold default")


def _cause(cause: Cause) -> Iterator[Text]:
    finding = cause.finding
    severity = finding.severity or Severity.ERROR
    yield Text("")
    title = Text(f"{severity.value} {finding.rule} {finding.name}", style=STYLES[severity])
    yield title.append(f"  [{finding.confidence}]", style="dim")
    yield from _paragraph(finding.message, indent="  ")
    yield from _field("where", _where(finding))
    if finding.measured:
        yield from _field(
            "measured", _numbers(finding.measured) + (f"; bound {_numbers(finding.bound)}" * bool(finding.bound))
        )
    rule = rules().get(finding.rule)
    for label, text in (
        ("why", rule.section("story") if rule else ""),
        ("you see", finding.predicts or (rule.section("predicts") if rule else "")),
        ("confirm", rule.section("confirm") if rule else ""),
        ("repair", rule.section("repair") if rule else ""),
    ):
        if text:
            yield from _field(label, " ".join(text.split()))
    for symptom in cause.symptoms:
        yield from _paragraph(f"{symptom.rule} {symptom.message}", indent="  └ ", style="dim")


def _where(finding: Finding) -> str:
    names = [place.name() for place in finding.all_places]
    if len(names) == 1:
        place = finding.location
        extra = [f"{k} {v}" for k, v in place.as_dict().items() if k not in ("file", "tensor", "module", "key")]
        key = f", key {place.key}" if place.key and (place.tensor or place.module) else ""
        return names[0] + key + (f" ({', '.join(extra)})" if extra else "")
    shown = [finding.location.name(), *(place.short_name() for place in finding.all_places[1:4])]
    return f"{', '.join(shown)}{' …' * (len(names) > 4)} ({len(names)} places)"


def _numbers(values: object) -> str:
    assert hasattr(values, "items")
    return ", ".join(f"{name} {_number(value)}" for name, value in values.items())


def _number(value: Measure) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = ", ".join(_number(item) for item in value[:MAX_ALSO])
        return f"[{shown}{', …' * (len(value) > MAX_ALSO)}]"
    return str(value)


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
    yield Text("\n" + ", ".join(parts), style="dim")
    for what, reason in report.unjudged.items():
        yield Text("not judged: ", style="bold yellow").append(f"{what}: {reason}", style="not bold default")
    for result in report.results:
        if result.outcome is Outcome.CRASHED:
            yield Text(f"{result.rule} crashed: {result.reason}", style="bold red")
        elif result.outcome is Outcome.SKIPPED and detail > 0:
            yield Text(f"{result.rule} skipped: {result.reason}", style="dim")
