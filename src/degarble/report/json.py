"""The machine report: one JSON document, schema version 1."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from degarble.diagnosis import Cause
from degarble.finding import Finding
from degarble.policy.policy import WaiverState
from degarble.policy.waivers import Waiver
from degarble.report.interface import SCHEMA_VERSION, Report, Words
from degarble.report.words import also_names, words_of

ENDINGS = (".json",)
MAX_INDENTED = 1_000
"""Reports with more findings are written without indentation, which would double them."""
MAX_PROSE = 100
"""Causes of one rule that repeat what its page says; further ones leave story, predicts and confirm empty."""


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """The document, indented, with a final newline. Text that is not Unicode (lone surrogates) is escaped."""
    text = encoded(document(report))
    return (msgspec.json.format(text, indent=2) if len(report.findings) <= MAX_INDENTED else text).decode() + "\n"


def encoded(value: Any) -> bytes:
    """Compact JSON of plain values."""
    return msgspec.json.encode(_printable(value))


def document(report: Report) -> dict[str, Any]:
    """The report as plain values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "tool": {"name": "degarble", "version": report.version},
        "target": {
            "path": report.target.path,
            "kind": report.target.kind,
            "formats": list(report.target.formats),
        },
        "status": report.status.value,
        "summary": report.summary,
        "causes": _causes(report),
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
    if report.comparison is not None:
        extras["comparison"] = report.comparison
    if report.diagnosis is not None:
        extras["diagnosis"] = report.diagnosis
    if report.accepted:
        extras["accepted"] = [_finding(finding) | _acceptance(finding) for finding in report.accepted]
    if report.waivers:
        extras["waivers"] = [_waiver(waiver, state) for waiver, state in report.waivers]
    return extras


def _acceptance(finding: Finding) -> dict[str, Any]:
    accepted = finding.accepted
    return {"acceptance": {"kind": accepted.kind, "reason": accepted.reason}} if accepted is not None else {}


def _waiver(waiver: Waiver, state: WaiverState) -> dict[str, Any]:
    expires = {"expires": waiver.expires.isoformat()} if waiver.expires is not None else {}
    return {"rule": waiver.rule, "scope": waiver.scope, "reason": waiver.reason, **expires, "state": state.value}


def _causes(report: Report) -> list[dict[str, Any]]:
    told: Counter[str] = Counter()
    causes = []
    for cause in report.causes:
        told[cause.finding.rule] += 1
        is_told = told[cause.finding.rule] <= MAX_PROSE
        causes.append(_cause(cause, words_of(report, cause.finding) if is_told else Words()))
    return causes


def _cause(cause: Cause, words: Words) -> dict[str, Any]:
    return {
        "finding": cause.finding.id,
        "rule": cause.finding.rule,
        "symptoms": [symptom.id for symptom in cause.symptoms],
        "story": words.story,
        "predicts": cause.finding.predicts or words.predicts,
        "confirm": words.confirm,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    location: dict[str, Any] = dict(finding.location.as_dict())
    if finding.places:
        location["also"] = also_names(finding)
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
