"""Causes over symptoms: a pure function on findings and the `symptom_of` edges of their rules.

A finding is a symptom if a rule it is a `symptom_of` has a finding at an overlapping place. Otherwise two faults that
have nothing to do with each other would swallow one another. Infos are notes: they explain nothing and cause nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from degarble.diagnosis.overlap import Extent, overlaps
from degarble.finding import Finding, Role, Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A finding that no other finding explains, with those it explains."""

    finding: Finding
    symptoms: tuple[Finding, ...]


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All findings with their roles and ids, and the causes in order of weight."""

    findings: tuple[Finding, ...]
    causes: tuple[Cause, ...]


def diagnose(findings: Sequence[Finding], symptom_of: Mapping[str, frozenset[str]]) -> Diagnosis:
    """Give every finding its role and rank the causes.

    `symptom_of` maps a rule to the rules that may explain it. Order of causes: severity, confidence, damage where a
    command measured it, number of findings explained, extent (checkpoint before layer before module before element),
    line, rule id. Where all findings have a line, as those of a trace, the line comes right after the severity.
    """
    extents = [Extent.of(finding) for finding in findings]
    is_trace = all(finding.location.line is not None for finding in findings)
    by_rule: dict[str, list[int]] = {}
    for number, finding in enumerate(findings):
        by_rule.setdefault(finding.rule, []).append(number)
    parents = [_parent(n, findings, extents, by_rule, symptom_of, is_trace) for n in range(len(findings))]
    roots = [_root(number, parents) for number in range(len(findings))]
    roles = [_role(finding, parents[number]) for number, finding in enumerate(findings)]
    children: dict[int, list[int]] = {}
    for number, root in enumerate(roots):
        if root != number:
            children.setdefault(root, []).append(number)
    causes = sorted(
        (number for number, role in enumerate(roles) if role is Role.CAUSE),
        key=lambda n: _weight(findings[n], extents[n], len(children.get(n, ())), is_trace),
    )
    order = causes + [child for cause in causes for child in children.get(cause, ())]
    placed = set(order)
    order += [number for number in range(len(findings)) if number not in placed]
    named = {
        number: replace(findings[number], id=f"f{place}", role=roles[number])
        for place, number in enumerate(order, start=1)
    }
    return Diagnosis(
        findings=tuple(named[number] for number in order),
        causes=tuple(Cause(finding=named[n], symptoms=tuple(named[c] for c in children.get(n, ()))) for n in causes),
    )


def _parent(
    number: int,
    findings: Sequence[Finding],
    extents: Sequence[Extent],
    by_rule: Mapping[str, list[int]],
    symptom_of: Mapping[str, frozenset[str]],
    is_trace: bool,
) -> int | None:
    """The strongest finding that explains this one."""
    candidates = [
        other
        for rule in symptom_of.get(findings[number].rule, frozenset())
        for other in by_rule.get(rule, ())
        if findings[other].severity is not Severity.INFO
        and overlaps(extents[number], extents[other])
        and not (is_trace and _is_later(findings[other], findings[number]))
    ]
    return min(candidates, key=lambda n: _weight(findings[n], extents[n], 0, is_trace), default=None)


def _is_later(one: Finding, other: Finding) -> bool:
    """What happens later in a trace explains nothing that came before it."""
    mine, theirs = one.location.line, other.location.line
    return mine is not None and theirs is not None and mine > theirs


def _root(number: int, parents: Sequence[int | None]) -> int:
    """Follow parents to the top; a cycle between rules is broken at its first member."""
    seen = {number}
    while (parent := parents[number]) is not None and parent not in seen:
        number = parent
        seen.add(number)
    return number


def _role(finding: Finding, parent: int | None) -> Role:
    if finding.severity is Severity.INFO:
        return Role.NOTE
    return Role.SYMPTOM if parent is not None else Role.CAUSE


def _weight(
    finding: Finding, extent: Extent, explained: int, is_trace: bool
) -> tuple[int, int, int, float, int, int, int, str]:
    """The order of causes. Findings of one trace go by their line first: the earliest violation is the cause."""
    severity = finding.severity.rank if finding.severity else 0
    confidence = finding.confidence.rank if finding.confidence else 0
    line = finding.location.line if finding.location.line is not None else -1
    early = line if is_trace else 0
    return (severity, early, confidence, -finding.damage, -explained, extent.rank, line, finding.rule)
