"""The machine report: one JSON document, schema version 1."""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.finding import MAX_ALSO, Finding
from degarble.registry import rules
from degarble.report.interface import SCHEMA_VERSION, Report
from degarble.version import __version__


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """The document, indented, with a final newline. Text that is not Unicode (lone surrogates) is escaped."""
    text = msgspec.json.encode(_printable(document(report)))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def document(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "degarble", "version": __version__},
        "target": {
            "path": report.target.path,
            "kind": report.target.kind,
            "formats": list(report.target.formats),
        },
        "status": report.status.value,
        "summary": report.summary,
        "causes": [_cause(cause.finding, cause.symptoms) for cause in report.causes],
        "findings": [_finding(finding) for finding in report.findings],
        "checks": [
            {"rule": result.rule, "outcome": result.outcome.value}
            | ({"reason": result.reason} if result.reason else {})
            for result in report.results
        ],
        "unjudged": [{"what": what, "reason": reason} for what, reason in report.unjudged.items()],
    } | _extras(report)


def _extras(report: Report) -> dict[str, Any]:
    """Keys that are there only when there is something to say."""
    extras: dict[str, Any] = {}
    if report.failure is not None:
        extras["error"] = report.failure
    if report.profile is not None:
        extras["profile"] = report.profile
    return extras


def _cause(finding: Finding, symptoms: tuple[Finding, ...]) -> dict[str, Any]:
    rule = rules().get(finding.rule)
    return {
        "finding": finding.id,
        "rule": finding.rule,
        "symptoms": [symptom.id for symptom in symptoms],
        "story": _one_line(rule.section("story")) if rule else "",
        "predicts": finding.predicts or (_one_line(rule.section("predicts")) if rule else ""),
        "confirm": _one_line(rule.section("confirm")) if rule else "",
    }


def _finding(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = dict(finding.location.as_dict())
    if finding.places:
        location["also"] = [place.short_name() for place in finding.places[1 : MAX_ALSO + 1]]
        location["count"] = len(finding.places)
    result: dict[str, Any] = {
        "id": finding.id,
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "role": finding.role,
        "location": location,
        "message": finding.message,
        "measured": dict(finding.measured),
        "bound": dict(finding.bound),
        "fingerprint": finding.fingerprint,
    }
    if finding.fix is not None:
        result["fix"] = {"id": finding.fix.id, "safe": finding.fix.safe}
    return result


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _printable(value: Any) -> Any:
    """Names from hostile files may hold lone surrogates, which UTF-8 cannot carry."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_printable(key): _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    return value
