"""A single page that opens offline: headline, causes with their evidence drawn, coverage, and the JSON document inside.

It loads nothing: the policy in its head forbids every request, allows the one style sheet by its digest, and no script.
The document is a data block, which no browser runs.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from degarble.finding import Role, Severity
from degarble.report import html_comparison
from degarble.report.diagnosis_parts import parts
from degarble.report.html_cause import MAX_LISTED, article, findings_list
from degarble.report.html_coverage import coverage
from degarble.report.html_text import bullets, details, esc, lines, table
from degarble.report.interface import Report, Status
from degarble.report.json import document, encoded
from degarble.report.plot_data import Peers
from degarble.report.visible import visible_report
from degarble.report.words import headline, plural, severity_of, where

ENDINGS = (".html", ".htm")
MAX_FULL = 100
"""Causes told in full; further ones get a row of a table."""
MAX_DRAWN = 20
"""Modules that are drawn, each with the first cause that names it."""
MAX_ROWS = 1_000
MAX_DOCUMENT = 3_500_000
"""Bytes of the embedded document; of a longer one the last findings are left out, and the page says so."""
MAX_COMPARISON = 1_500_000
MARKS = {Status.OK: "✓", Status.PARTIAL: "!", Status.ERROR: "!"}


def render(report: Report, *, detail: int = 0, colour: bool = False, pictures: str = "") -> str:
    """The page. `pictures` are drawings that a command adds, HTML already."""
    shown = visible_report(report)
    title = f"{shown.target.path[:200] or 'degarble'}: {headline(shown)}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        f'<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{esc(title)}</title><style>{style()}</style>"
    )
    body = "".join(
        (_header(shown, pictures), f'<main id="main">{"".join(_sections(shown, pictures))}</main>', _footer(shown))
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{body}</body></html>\n'


@cache
def style() -> str:
    """The style sheet."""
    return (files("degarble.data") / "report.css").read_text(encoding="utf-8")


def policy() -> str:
    """Nothing may be loaded or run; one style sheet, known by its digest."""
    digest = base64.b64encode(hashlib.sha256(style().encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _header(report: Report, pictures: str) -> str:
    kind = "ok" if report.status is Status.OK else "error" if _is_red(report) else "warning"
    facts = [f"degarble {report.version}", report.target.kind, *report.target.formats]
    counts = "".join(
        f'<li class="{severity.value if report.summary[severity.value] else "none"}">'
        f"{esc(plural(report.summary[severity.value], severity.value))}</li>"
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    links = [
        ("diagnosis", "Diagnosis", report.diagnosis is not None),
        ("causes", "Causes", bool(report.causes)),
        ("comparison", "Comparison", report.comparison is not None),
        ("pictures", "Pictures", bool(pictures)),
        ("notes", "Notes", bool(_notes(report))),
        ("coverage", "Coverage", True),
    ]
    nav = "".join(f'<li><a href="#{name}">{label}</a></li>' for name, label, there in links if there)
    return (
        '<a class="skip" href="#main">Skip to the result</a>'
        f'<header class="{kind}"><p class="facts">{esc(" · ".join(facts))}</p>'
        f"<h1><code>{esc(report.target.path or 'degarble')}</code></h1>"
        f'<p class="verdict"><span aria-hidden="true">{MARKS.get(report.status, "✕")}</span> {esc(headline(report))}</p>'
        f'<ul class="counts">{counts}<li class="none">{esc(plural(report.summary["info"], "note"))}</li></ul>'
        f'<nav aria-label="Sections"><ul>{nav}</ul></nav></header>'
    )


def _is_red(report: Report) -> bool:
    return report.status is Status.ERROR or bool(report.summary["error"])


def _notes(report: Report) -> list[Any]:
    return [finding for finding in report.findings if finding.role is Role.NOTE]


def _sections(report: Report, pictures: str) -> Iterator[str]:
    if report.failure is not None:
        yield _section("failure", "Why nothing was checked", f"<p>{lines(report.failure)}</p>")
    if report.diagnosis is not None:
        yield _section("diagnosis", "Diagnosis", "".join(_diagnosis(report.diagnosis)))
    if report.causes:
        yield _section("causes", "Causes", "".join(_causes(report)))
    if pictures:
        yield _section("pictures", "Pictures", pictures)
    if report.comparison is not None:
        yield _section("comparison", "Comparison", html_comparison.section(report))
    if notes := _notes(report):
        yield _section("notes", "Notes", findings_list(notes))
    yield _section("coverage", "Coverage", coverage(report))
    yield _section("document", "The document", _document(report))


def _diagnosis(diagnosis: Mapping[str, object]) -> Iterator[str]:
    for part in parts(diagnosis):
        told = f"<p>{' '.join(map(esc, part.lines))}</p>" if part.is_prose else bullets(map(esc, part.lines))
        yield f"<h3>{esc(part.title)}</h3>{told}"


def _section(name: str, title: str, body: str) -> str:
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{title}</h2>{body}</section>'


def _causes(report: Report) -> Iterator[str]:
    peers = Peers(report.profile) if report.profile else None
    drawn: set[str | None] = set()
    for cause in report.causes[:MAX_FULL]:
        module = cause.finding.location.module
        yield article(report, cause, peers if module not in drawn and len(drawn) < MAX_DRAWN else None)
        drawn |= {module} if module is not None else set()
    rest = report.causes[MAX_FULL : MAX_FULL + MAX_ROWS]
    if rest:
        rows = [
            (esc(f.rule), esc(severity_of(f)), lines(f.message[:500]), esc(where(f)[:500]))
            for f in (cause.finding for cause in rest)
        ]
        yield details(f"{plural(len(rest), 'further cause')}", table("Further causes", COLUMNS, rows))
    left = len(report.causes) - MAX_FULL - MAX_ROWS
    if left > 0:
        yield f"<p>… and {plural(left, 'cause')} more, in the document below.</p>"


COLUMNS = ("rule", "severity", "message", "where")


HIDDEN = re.compile("[&<>\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Characters that end the element, or turn and hide what an editor shows; only in strings, where JSON may spell them out."""


def _document(report: Report) -> str:
    """The report as JSON, without the profile, which the drawings show. No `<` in it can end the element."""
    whole = document(report)
    whole.pop("profile", None)
    shortened = _shorten_comparison(whole)
    text, num_findings = _fitting(whole)
    safe = HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    all_there = num_findings == len(report.findings)
    note = "" if all_there else f" Of {len(report.findings):,} findings it holds the first {num_findings:,}."
    note += " Of the comparison it holds no single modules and tokens." if shortened else ""
    return (
        "<p>This page carries the report as JSON, in the element <code>degarble-report</code>."
        f'{note}</p><script type="application/json" id="degarble-report">{safe}</script>'
    )


def _shorten_comparison(whole: dict[str, Any]) -> bool:
    """Leave out the long lists of a comparison that would fill the page; whether that was needed."""
    comparison = whole.get("comparison")
    if comparison is None or len(encoded(comparison)) <= MAX_COMPARISON:
        return False
    whole["comparison"] = {key: value for key, value in comparison.items() if not isinstance(value, (list, tuple))}
    return True


def _fitting(whole: dict[str, Any]) -> tuple[str, int]:
    """The document, with so many of its findings that it stays below the limit."""
    text = encoded(whole).decode()
    keep = len(whole["findings"])
    while len(text) > MAX_DOCUMENT and keep > MAX_LISTED:
        keep = min(keep - 1, max(MAX_LISTED, int(keep * MAX_DOCUMENT / len(text) * 0.95)))
        ids = {finding["id"] for finding in whole["findings"][:keep]}
        causes = [c for c in whole["causes"] if ids.issuperset((c["finding"], *c["symptoms"]))]
        text = encoded(whole | {"findings": whole["findings"][:keep], "causes": causes}).decode()
    return text, keep


def _footer(report: Report) -> str:
    return f"<footer><p>Made by degarble {esc(report.version)}. Skipped rules are not passed rules.</p></footer>"
