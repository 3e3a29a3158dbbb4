"""What was and was not checked, as a section of the page: unchecked is never shown as clean."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.report.html_text import bullets, code, details, esc, lines, table
from degarble.report.interface import Report
from degarble.report.words import accepted_note, plural, waiver_notes, where
from degarble.runner import Outcome

MAX_ROWS = 500
ACCEPTED_COLUMNS = ("rule", "message", "where", "accepted by", "reason")


def coverage(report: Report) -> str:
    """Numbers, what could not be judged, crashes, and the skipped rules with their reasons."""
    return "".join(_parts(report))


def _parts(report: Report) -> Iterator[str]:
    summary = report.summary
    counts = [f"{plural(summary['ran'], 'rule')} checked", f"{summary['skipped']:,} not applicable or without input"]
    if summary["crashed"]:
        counts.append(f"{summary['crashed']} crashed")
    yield f"<p>{', '.join(counts)}.</p>"
    if report.unjudged:
        rows = list(report.unjudged.items())[:MAX_ROWS]
        yield "<h3>Not judged</h3>"
        yield bullets(f"{code(what)}: {lines(reason)}" for what, reason in rows)
        if len(report.unjudged) > MAX_ROWS:
            yield f"<p>… and {len(report.unjudged) - MAX_ROWS:,} more</p>"
    yield from _accepted(report)
    crashed = [result for result in report.results if result.outcome is Outcome.CRASHED]
    if crashed:
        yield "<h3>Crashed, which is a bug of degarble</h3>"
        yield bullets(f"<strong>{esc(r.rule)}</strong> {lines(r.reason or '')}" for r in crashed[:MAX_ROWS])
    skipped = [result for result in report.results if result.outcome is Outcome.SKIPPED]
    if skipped:
        reasons = [(esc(r.rule), lines((r.reason or "")[:500])) for r in skipped[:MAX_ROWS]]
        yield details(f"{plural(len(skipped), 'rule')} skipped", table("Skipped rules", ("rule", "reason"), reasons))
    passed = [result.rule for result in report.results if result.outcome is Outcome.OK]
    if passed:
        yield details(f"{plural(len(passed), 'rule')} found nothing", f"<p>{esc(', '.join(passed[:MAX_ROWS]))}</p>")


def _accepted(report: Report) -> Iterator[str]:
    """Findings that do not count, with the reasons, and waivers that are idle."""
    rows = [
        (esc(f.rule), lines(f.message[:500]), esc(where(f)[:500]), esc(f.accepted.kind), lines(f.accepted.reason[:500]))
        for f in report.accepted[:MAX_ROWS]
        if f.accepted is not None
    ]
    if rows:
        yield details(accepted_note(report), table("Accepted findings", ACCEPTED_COLUMNS, rows))
    notes = waiver_notes(report)
    if notes:
        yield "<h3>Waivers that are not needed or past their date</h3>"
        yield bullets(lines(note) for note in notes[:MAX_ROWS])
