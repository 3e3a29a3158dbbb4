"""The findings of all experiments as one list of causes.

Findings on files and of forward passes are joined by the edges of their rules. A trace is judged for itself: its lines order
it. What an endpoint shows is a symptom where the table names one of the proven causes for it, and a cause of its own, not
understood yet, where it does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from degarble.diagnosing.gathering import PROBE_PREFIX, Gathered
from degarble.diagnosis import Cause
from degarble.diagnosis import diagnose as by_edges
from degarble.diagnosis.hypothesis import can_explain, proven_by, rows_of
from degarble.finding import Finding, Role
from degarble.registry import rules

ON_FILES = ("check", "check-reference", "walk")


@dataclass(slots=True)
class Joined:
    """One cause, and where it was found."""

    finding: Finding
    symptoms: list[Finding] = field(default_factory=list)
    found_by: str = ""
    proof: str = ""
    """What proves it beyond the rule's own evidence; empty where nothing does."""
    proof_kind: str = "rule"
    repair: str = ""
    hypotheses: tuple[str, ...] = ()


def join(known: Gathered) -> tuple[list[Joined], list[Finding]]:
    """Causes in no order yet, and the notes."""
    causes: list[Joined] = []
    notes: list[Finding] = []
    on_files = [f for name in ON_FILES if name in known.reports for f in known.reports[name].findings]
    if on_files:
        found = by_edges(_unique(on_files), {rule.id: rule.symptom_of for rule in rules().values()})
        causes += [_joined(cause, "check") for cause in found.causes]
        notes += [finding for finding in found.findings if finding.role is Role.NOTE]
    for name, report in known.reports.items():
        if name not in ON_FILES and name != "probe":
            fresh = [one for one in report.causes if all(one.finding.rule != c.finding.rule for c in causes)]
            causes += _by_rule(fresh, name)
            notes += [finding for finding in report.findings if finding.role is Role.NOTE]
    if "probe" in known.reports:
        _join_probe(known.reports["probe"].causes, causes)
        notes += [finding for finding in known.reports["probe"].findings if finding.role is Role.NOTE]
    return causes, notes


def _by_rule(found: Sequence[Cause], name: str) -> list[Joined]:
    """One cause for each rule of a trace: where it broke first; in later requests it broke again."""
    heads: dict[str, Joined] = {}
    for cause in found:
        head = heads.get(cause.finding.rule)
        if head is None:
            heads[cause.finding.rule] = _joined(cause, name)
        else:
            head.symptoms += [cause.finding, *cause.symptoms]
    return list(heads.values())


def _join_probe(found: Iterable[Cause], causes: list[Joined]) -> None:
    """Under what explains them; a warning of ENG703 and the like stays a cause."""
    proven = list(causes)
    for cause in found:
        rows = rows_of(rule=cause.finding.rule) if cause.finding.rule.startswith(PROBE_PREFIX) else ()
        parent = next((one for one in proven if rows and can_explain(one.hypotheses, rows)), None)
        if parent is None:
            causes.append(_joined(cause, "probe"))
        else:
            parent.symptoms += [cause.finding, *cause.symptoms]


def _joined(cause: Cause, found_by: str) -> Joined:
    return Joined(
        finding=cause.finding,
        symptoms=list(cause.symptoms),
        found_by=found_by,
        hypotheses=proven_by(cause.finding.rule),
    )


def _unique(findings: Sequence[Finding]) -> list[Finding]:
    """The same rule at the same place once: two experiments may both have run it."""
    found: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        found.setdefault((finding.rule, finding.fingerprint), replace(finding, id="", role=Role.CAUSE))
    return list(found.values())


def numbered(causes: Sequence[Joined], notes: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Cause, ...]]:
    """Findings with ids and roles in the order of the report: causes, their symptoms, notes."""
    findings: list[Finding] = []
    made: list[Cause] = []
    heads = [replace(one.finding, id=f"f{number}", role=Role.CAUSE) for number, one in enumerate(causes, start=1)]
    number = len(heads)
    tail: list[Finding] = []
    for head, one in zip(heads, causes, strict=True):
        below = [
            replace(symptom, id=f"f{number + at}", role=Role.SYMPTOM)
            for at, symptom in enumerate(one.symptoms, start=1)
        ]
        number += len(below)
        tail += below
        made.append(Cause(finding=head, symptoms=tuple(below)))
    findings = [*heads, *tail]
    for note in notes:
        number += 1
        findings.append(replace(note, id=f"f{number}", role=Role.NOTE))
    return tuple(findings), tuple(made)
