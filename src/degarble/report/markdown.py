"""Markdown for a comment on a pull request or the summary of a job: causes first, details folded, never too long.

Names come from files that nobody vouches for, so nothing in them may become a link, a mention, an image or HTML: names
are code spans, and in sentences every character that Markdown knows is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from degarble.diagnosis import Cause
from degarble.finding import Finding, Role, Severity
from degarble.report.diagnosis_parts import parts
from degarble.report.interface import Report, Status
from degarble.report.visible import visible_report
from degarble.report.words import accepted_note, headline, measured, plural, severity_of, waiver_notes, where, words_of
from degarble.runner import Outcome

ENDINGS = (".md",)
MAX_CHARS = 60_000
"""A comment holds 65,536 characters."""
MAX_SYMPTOMS = 20
MAX_ROWS = 200
ICONS = {Severity.ERROR: "❌", Severity.WARNING: "⚠️", Severity.INFO: "ℹ️"}
STATUS_ICONS = {Status.OK: "✅", Status.PARTIAL: "⚠️", Status.ERROR: "❌"}
_SPECIAL = re.compile(r"([\\`*\[\]#|~$]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=[wW]{3})\.)")
_START = re.compile(r"^(\s*\d*)([-+=.)])")
"""What begins a list or underlines a heading."""
_CODE = re.compile(r"`([^`]+)`")


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """Headline, causes, coverage. Causes that do not fit are counted."""
    shown = visible_report(report)
    head, tail = _head(shown), list(_tail(shown, detail))
    room = MAX_CHARS - len(head) - sum(map(len, tail)) - 200
    blocks: list[str] = []
    for cause in shown.causes if shown.failure is None else ():
        block = _brief(cause.finding) if detail < 0 else _cause(shown, cause)
        room -= len(block) + 2
        if room < 0:
            break
        blocks.append(block)
    left = 0 if shown.failure is not None else len(shown.causes) - len(blocks)
    if left:
        blocks.append(f"… and {plural(left, 'more cause')}; the JSON report lists all.")
    return "\n\n".join([head, *blocks, *tail]) + "\n"


def _head(report: Report) -> str:
    icon = STATUS_ICONS.get(report.status, ICONS[Severity.ERROR if report.summary["error"] else Severity.WARNING])
    formats = f" ({escape(', '.join(report.target.formats)[:500])})" if report.target.formats else ""
    head = f"### {icon} {code(report.target.path[:500] or 'degarble')}{formats}: {headline(report)}"
    return head if report.failure is None else f"{head}\n\n{escape(report.failure)}"


def _brief(finding: Finding) -> str:
    return f"- {ICONS[severity_of(finding)]} **{finding.rule}** {escape(finding.message)}"


def _cause(report: Report, cause: Cause) -> str:
    finding, words = cause.finding, words_of(report, cause.finding)
    name = f"{finding.rule} {escape(finding.name)}"
    parts = [
        f"{ICONS[severity_of(finding)]} **{severity_of(finding)} {name}** ({finding.confidence})",
        escape(finding.message),
        f"- where: {code(where(finding))}" + (f"\n- measured: {code(m)}" if (m := measured(finding)) else ""),
    ]
    if cause.symptoms:
        parts.append(_folded(f"Explains {plural(len(cause.symptoms), 'finding')}", _list(cause.symptoms)))
    page = (
        ("Why", words.story),
        ("You will see", words.predicts),
        ("Confirm", words.confirm),
        ("Repair", words.repair),
    )
    told = "\n\n".join(f"**{label}.** {prose(text)}" for label, text in page if text)
    if told:
        parts.append(_folded("Why, what you will see, how to confirm, how to repair", told))
    return "\n\n".join(parts)


def _list(findings: Sequence[Finding]) -> str:
    lines = [f"- {finding.rule} {escape(finding.message[:1000])}" for finding in findings[:MAX_SYMPTOMS]]
    if len(findings) > MAX_SYMPTOMS:
        lines.append(f"- … and {len(findings) - MAX_SYMPTOMS:,} more")
    return "\n".join(lines)


def _folded(summary: str, body: str) -> str:
    """`summary` is ours, so that it needs no escape."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n\n</details>"


def _tail(report: Report, detail: int) -> Iterator[str]:
    """The account of a diagnosis, notes, and what was and was not checked."""
    if report.failure is not None:
        return
    if report.diagnosis is not None:
        for part in parts(report.diagnosis):
            told = (escape(line) if part.is_prose else f"- {escape(line)}" for line in part.lines)
            yield f"#### {part.title}\n\n" + ("  " if part.is_prose else "\n").join(told)
    notes = [finding for finding in report.findings if finding.role is Role.NOTE]
    if notes and detail >= 0:
        yield _folded(plural(len(notes), "note"), _list(notes))
    summary = report.summary
    counts = f"{summary['ran']} rules checked, {summary['skipped']} not applicable or without input"
    counts += f", {summary['crashed']} crashed (our bug)" if summary["crashed"] else ""
    yield counts + (f"; {accepted_note(report)}" if report.accepted else "") + "."
    rows = [f"- **not judged:** {escape(what[:500])}: {escape(why[:500])}" for what, why in report.unjudged.items()]
    rows += [f"- {escape(note[:1000])}" for note in waiver_notes(report)]
    rows += [
        f"- **{result.rule} crashed:** {escape((result.reason or '')[:500])}"
        for result in report.results
        if result.outcome is Outcome.CRASHED
    ]
    if rows:
        more = [f"- … and {len(rows) - MAX_SYMPTOMS:,} more"] if len(rows) > MAX_SYMPTOMS else []
        yield "\n".join(rows[:MAX_SYMPTOMS] + more)
    skipped = [result for result in report.results if result.outcome is Outcome.SKIPPED]
    if skipped and detail > 0:
        lines = [f"- {result.rule}: {escape((result.reason or '')[:100])}" for result in skipped[:MAX_ROWS]]
        yield _folded(f"{plural(len(skipped), 'rule')} skipped", "\n".join(lines))


def escape(text: str) -> str:
    """Plain text as Markdown that shows just that: no markup, link, mention, issue number or HTML."""
    lines = []
    for line in text.split("\n"):
        safe = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        safe = _START.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", safe))
        lines.append(safe.replace("@", "@<!-- -->").replace("\\#", "\\#<!-- -->"))
    return "  \n".join(lines)


def code(text: str) -> str:
    """A code span, fenced by more backticks than the text has in a row."""
    line = " ".join(text.split("\n"))
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    pad = " " if line[:1] in ("`", " ") or line[-1:] in ("`", " ") else ""
    return f"{fence}{pad}{line}{pad}{fence}" if line else ""


def prose(text: str) -> str:
    """Sentences of a rule's page, whose backticks mean code."""
    parts = _CODE.split(text)
    return "".join(code(part) if number % 2 else escape(part) for number, part in enumerate(parts))
