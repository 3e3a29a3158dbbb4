"""SARIF 2.1.0, the format of code scanning: rules with their pages, results with places and stable fingerprints.

Choices that the standard leaves open: severity info is level `note`; a file is addressed from where the tool was started;
every region starts at line 1 unless a line is known, because code scanning shows no result without a region; what a
result explains is in `relatedLocations` (as a message) and in `properties.symptoms` (as ids). Accepted findings are
results with a suppression that carries the reason. Skipped rules, idle waivers and what could not be judged are
notifications, so that a clean log is not mistaken for a complete one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from degarble.diagnosis import Cause
from degarble.finding import Acceptance, Confidence, Finding, Severity
from degarble.registry import rules
from degarble.report.address import uri_of
from degarble.report.interface import Report, Target
from degarble.report.json import encoded
from degarble.report.visible import MAX_ITEMS, visible_report
from degarble.report.words import also_names, headline, severity_of, waiver_notes, words_of
from degarble.runner import Outcome

ENDINGS = (".sarif",)
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}
RANKS = {Confidence.PROVEN: 100.0, Confidence.LIKELY: 60.0, Confidence.HINT: 30.0}
MAX_RESULTS = 5_000
"""Code scanning keeps that many results of a run; causes come first."""
MAX_BYTES = 4_000_000
MAX_INDENTED = 1_000


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """One log with one run."""
    shown = visible_report(report)
    text = encoded({"$schema": SCHEMA, "version": "2.1.0", "runs": [_run(shown)]})
    return (msgspec.json.format(text, indent=2) if len(report.findings) <= MAX_INDENTED else text).decode() + "\n"


def _run(report: Report) -> dict[str, Any]:
    every = (*report.findings, *report.accepted)
    named = dict.fromkeys([finding.rule for finding in every] + [result.rule for result in report.results])
    places = {rule: number for number, rule in enumerate(named)}
    results = _results(report, places)
    target = {"path": report.target.path, "kind": report.target.kind, "formats": list(report.target.formats)}
    return {
        "tool": {
            "driver": {
                "name": "degarble",
                "version": report.version,
                "rules": [_rule(report, rule) for rule in places],
            }
        },
        "invocations": [_invocation(report, places, len(every) - len(results))],
        "results": results,
        "columnKind": "unicodeCodePoints",
        "properties": {
            "target": target,
            "status": report.status.value,
            "headline": headline(report),
            "summary": report.summary,
        },
    }


def _rule(report: Report, rule: str) -> dict[str, Any]:
    """What is known of a rule; the whole page only where it found something."""
    example = next((finding for finding in report.findings if finding.rule == rule), None)
    known = rules().get(rule)
    descriptor: dict[str, Any] = {"id": rule, "properties": {"tags": [rule[:3]]}}
    if known is None:
        return descriptor | ({"name": example.name} if example else {})
    descriptor |= {
        "name": known.name,
        "shortDescription": {"text": known.summary.replace("`", "")},
        "defaultConfiguration": {"level": LEVELS[known.severity]},
    }
    if example is not None:
        descriptor["fullDescription"] = {"text": words_of(report, example).story or known.summary}
        descriptor["help"] = {"text": known.page, "markdown": f"# {rule} {known.name}\n\n{known.page}"}
    return descriptor


def _results(report: Report, places: dict[str, int]) -> list[dict[str, Any]]:
    causes = {cause.finding.id: cause for cause in report.causes}
    results: list[dict[str, Any]] = []
    room = MAX_BYTES
    for finding in (*report.findings, *report.accepted)[:MAX_RESULTS]:
        result = _result(report.target, finding, places[finding.rule], causes.get(finding.id))
        room -= len(msgspec.json.encode(result))
        if room < 0:
            break
        results.append(result)
    return results


def _result(target: Target, finding: Finding, index: int, cause: Cause | None) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "id": finding.id,
        "role": finding.role,
        "confidence": finding.confidence,
        "measured": dict(finding.measured),
        "bound": dict(finding.bound),
    }
    if finding.fix is not None:
        properties["fix"] = {"id": finding.fix.id, "safe": finding.fix.safe}
    if finding.places:
        properties["count"] = len(finding.places)
    symptoms = cause.symptoms[:MAX_ITEMS] if cause is not None else ()
    if cause is not None and symptoms:
        properties["symptoms"] = [symptom.id for symptom in symptoms]
        properties["numSymptoms"] = len(cause.symptoms)
    result = {
        "ruleId": finding.rule,
        "ruleIndex": index,
        "level": LEVELS[severity_of(finding)],
        "message": {"text": finding.message},
        "locations": [_location(target, finding)],
        "partialFingerprints": {
            "degarble/v1": finding.fingerprint,
            "primaryLocationLineHash": f"{finding.fingerprint}:1",
        },
        "rank": RANKS[finding.confidence or Confidence.PROVEN],
        "properties": properties,
    }
    if finding.accepted is not None:
        result["suppressions"] = [
            {"kind": "external", "status": "accepted", "justification": _justification(finding.accepted)}
        ]
    related = [*_also(finding), *(_explained(target, symptom) for symptom in symptoms)]
    if related:
        result["relatedLocations"] = [{"id": number} | place for number, place in enumerate(related, start=1)]
    return result


def _justification(accepted: Acceptance) -> str:
    return f"{accepted.kind}: {accepted.reason}"


def _location(target: Target, finding: Finding) -> dict[str, Any]:
    place = finding.location
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": uri_of(target, place.file)},
            "region": {"startLine": max(1, place.line or 1)},
        }
    }
    logical = [
        {"fullyQualifiedName": name, "kind": kind}
        for kind, name in (("tensor", place.tensor), ("module", place.module), ("key", place.key))
        if name
    ]
    if logical:
        location["logicalLocations"] = logical
    finer = {key: value for key, value in place.as_dict().items() if key not in ("file", "tensor", "module", "key")}
    if finer:
        location["properties"] = finer
    return location


def _also(finding: Finding) -> Iterator[dict[str, Any]]:
    """The further places of a folded finding."""
    for name in also_names(finding):
        yield {"logicalLocations": [{"fullyQualifiedName": name}], "message": {"text": f"also at {name}"}}


def _explained(target: Target, symptom: Finding) -> dict[str, Any]:
    return _location(target, symptom) | {
        "message": {"text": f"explains {symptom.id} {symptom.rule}: {symptom.message}"}
    }


def _invocation(report: Report, places: dict[str, int], left_out: int) -> dict[str, Any]:
    execution = [_notification("error", report.failure)] if report.failure is not None else []
    configuration = [_notification("warning", f"not judged: {what}: {why}") for what, why in report.unjudged.items()]
    configuration += [_notification("warning", note) for note in waiver_notes(report)]
    for result in report.results:
        rule = {"associatedRule": {"id": result.rule, "index": places[result.rule]}}
        if result.outcome is Outcome.CRASHED:
            execution.append(_notification("error", f"{result.rule} crashed: {result.reason}") | rule)
        elif result.outcome is Outcome.SKIPPED:
            configuration.append(_notification("note", f"{result.rule} skipped: {result.reason}") | rule)
    if left_out:
        execution.append(_notification("warning", f"{left_out} further findings are not in this log"))
    return {
        "executionSuccessful": report.failure is None and report.count(Outcome.CRASHED) == 0,
        "toolExecutionNotifications": execution,
        "toolConfigurationNotifications": configuration,
    }


def _notification(level: str, text: str) -> dict[str, Any]:
    return {"level": level, "message": {"text": text}}
