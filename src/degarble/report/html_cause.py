"""One cause as an article of the page: what is wrong, the numbers, the evidence drawn, the words of its rule."""

from __future__ import annotations

from collections.abc import Sequence

from degarble.diagnosis import Cause
from degarble.finding import Finding
from degarble.report.html_text import bullets, code, details, esc, lines, prose
from degarble.report.interface import Report
from degarble.report.plot_data import Peers
from degarble.report.plots import evidence
from degarble.report.words import also_names, numbers, plural, severity_of, where, words_of

MAX_LISTED = 50


def article(report: Report, cause: Cause, peers: Peers | None) -> str:
    """The whole of one cause; `peers` is None where nothing is to be drawn."""
    finding = cause.finding
    group = peers.group(finding) if peers is not None else None
    parts = [
        f'<h3 id="{esc(finding.id)}">{badge(finding)} {esc(finding.rule)} {esc(finding.name)} '
        f'<span class="sure">{esc(finding.confidence or "")}</span></h3>',
        f'<p class="message">{lines(finding.message)}</p>',
        f"<dl>{_facts(report, finding)}</dl>",
    ]
    if group is not None:
        parts.append(evidence(group, esc(finding.id)))
    if len(also := also_names(finding)) > 3:
        count = len(finding.all_places)
        shown = bullets(map(code, [finding.location.short_name(), *also]))
        more = f"<p>… and {count - len(also) - 1:,} more</p>" if count > len(also) + 1 else ""
        parts.append(details(f"All {plural(count, 'place')}", shown + more))
    if cause.symptoms:
        parts.append(details(f"Explains {plural(len(cause.symptoms), 'finding')}", findings_list(cause.symptoms)))
    return f'<article class="{severity_of(finding)}" aria-labelledby="{esc(finding.id)}">{"".join(parts)}</article>'


def badge(finding: Finding) -> str:
    """The severity as a word in colour."""
    severity = severity_of(finding)
    return f'<span class="badge {severity}">{severity}</span>'


def findings_list(findings: Sequence[Finding]) -> str:
    """Findings in a line each, as many as one reads."""
    items = [
        f"{badge(finding)} <strong>{esc(finding.rule)}</strong> {lines(finding.message)}"
        for finding in findings[:MAX_LISTED]
    ]
    if len(findings) > MAX_LISTED:
        items.append(f"… and {len(findings) - MAX_LISTED:,} more")
    return bullets(items)


def _facts(report: Report, finding: Finding) -> str:
    words = words_of(report, finding)
    facts = [("Where", code(where(finding)))]
    facts += [
        (label, code(numbers(values)))
        for label, values in (("Measured", finding.measured), ("Bound", finding.bound))
        if values
    ]
    facts += [
        (label, prose(text))
        for label, text in (
            ("Why output turns to garbage", words.story),
            ("What you will see", words.predicts),
            ("How to confirm", words.confirm),
            ("How to repair it", words.repair),
        )
        if text
    ]
    if finding.fix is not None:
        safety = "may run unattended" if finding.fix.safe else "needs a person to decide"
        facts.append(("Repair plan", f"{code(finding.fix.id)}, {safety}"))
    return "".join(f"<div><dt>{label}</dt><dd>{text}</dd></div>" for label, text in facts)
