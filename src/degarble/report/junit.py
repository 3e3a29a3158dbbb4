"""JUnit XML, which every CI server draws as a table: one test case a rule.

A rule with an error has failed; warnings and notes are its output, because no CI server knows a middle way. A skipped rule
carries its reason, a crashed one is an error, and what could not be judged, or was accepted, is a skipped case of its
own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

from degarble.finding import Finding, Severity
from degarble.registry import rules
from degarble.report.interface import Report
from degarble.report.visible import visible_report
from degarble.report.words import headline, measured, severity_of, where, words_of
from degarble.runner import Outcome, RuleResult

ENDINGS = (".xml",)
MAX_FINDINGS = 100
"""Of one rule and kind, told in full."""


def render(report: Report, *, detail: int = 0, colour: bool = False) -> str:
    """One suite in a document of its own."""
    shown = visible_report(report)
    found: dict[str, list[Finding]] = {}
    for finding in shown.findings:
        found.setdefault(finding.rule, []).append(finding)
    explained = {symptom.id: cause.finding for cause in shown.causes for symptom in cause.symptoms}
    unlisted = found.keys() - {result.rule for result in shown.results}
    results = [*shown.results, *(RuleResult(rule=rule, outcome=Outcome.FINDINGS) for rule in sorted(unlisted))]
    cases = [_case(shown, result, found.get(result.rule, []), explained) for result in results]
    if shown.failure is not None:
        cases.append(_child_case("check", "error", "error", shown.failure))
    cases += [_child_case(f"judged: {what}", "skipped", "partial", why) for what, why in shown.unjudged.items()]
    cases += [
        _child_case(f"accepted: {one.rule} {where(one)}", "skipped", one.accepted.kind, one.accepted.reason)
        for one in shown.accepted[:MAX_FINDINGS]
        if one.accepted is not None
    ]
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": str(sum(case.find("error") is not None for case in cases)),
    }
    skipped = str(sum(case.find("skipped") is not None for case in cases))
    root = ElementTree.Element("testsuites", {"name": "degarble"} | counts)
    name = f"degarble {shown.target.path}".strip()
    suite = ElementTree.SubElement(root, "testsuite", {"name": name} | counts | {"skipped": skipped})
    suite.append(_properties(shown))
    suite.extend(cases)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _properties(report: Report) -> ElementTree.Element:
    properties = ElementTree.Element("properties")
    values = {
        "degarble": report.version,
        "status": report.status.value,
        "result": headline(report),
        "kind": report.target.kind,
        "formats": ", ".join(report.target.formats),
    }
    for name, value in values.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    return properties


def _case(
    report: Report, result: RuleResult, findings: Sequence[Finding], explained: Mapping[str, Finding]
) -> ElementTree.Element:
    known = rules().get(result.rule)
    name = known.name if known else findings[0].name if findings else ""
    case = _empty_case(f"{result.rule} {name}".strip(), result.rule[:3])
    errors = [finding for finding in findings if severity_of(finding) is Severity.ERROR]
    others = [finding for finding in findings if severity_of(finding) is not Severity.ERROR]
    if errors:
        failure = ElementTree.SubElement(case, "failure", {"type": result.rule, "message": errors[0].message})
        failure.text = _told(report, errors, explained)
    if result.outcome is Outcome.CRASHED:
        ElementTree.SubElement(case, "error", {"type": "crashed", "message": result.reason or "crashed"})
    elif result.outcome is Outcome.SKIPPED:
        ElementTree.SubElement(case, "skipped", {"message": result.reason or "skipped"})
    if others:
        ElementTree.SubElement(case, "system-out").text = _told(report, others, explained)
    return case


def _empty_case(name: str, family: str = "") -> ElementTree.Element:
    return ElementTree.Element("testcase", {"classname": f"degarble.{family}".rstrip("."), "name": name})


def _child_case(name: str, kind: str, type_: str, message: str) -> ElementTree.Element:
    case = _empty_case(name)
    ElementTree.SubElement(case, kind, {"type": type_, "message": message})
    return case


def _told(report: Report, findings: Sequence[Finding], explained: Mapping[str, Finding]) -> str:
    blocks = []
    for finding in findings[:MAX_FINDINGS]:
        lines = [
            f"{finding.severity} {finding.id} [{finding.confidence}] {finding.message}",
            f"where: {where(finding)}",
        ]
        if text := measured(finding):
            lines.append(f"measured: {text}")
        if cause := explained.get(finding.id):
            lines.append(f"explained by: {cause.id} {cause.rule} {cause.name}")
        blocks.append("\n".join(lines))
    if len(findings) > MAX_FINDINGS:
        blocks.append(f"… and {len(findings) - MAX_FINDINGS:,} more")
    words = words_of(report, findings[0])
    blocks += [f"{label}: {text}" for label, text in (("why", words.story), ("repair", words.repair)) if text]
    return "\n\n".join(blocks)
