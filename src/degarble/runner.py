"""Runs every rule on one target: order, skips with reasons, crashes kept apart from findings."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from degarble.errors import EvidenceMissing, EvidenceUnjudged, MissingExtra, UsageError
from degarble.evidence.store import NOT_AT_HEADER_LEVEL, Evidence, Settings
from degarble.finding import Finding, Severity, fold
from degarble.policy.policy import NO_POLICY, Policy
from degarble.registry import Check, Level, Rule

log = logging.getLogger(__name__)


class Outcome(StrEnum):
    """What became of one rule. A skip is not a pass."""

    OK = "ok"
    FINDINGS = "findings"
    SKIPPED = "skipped"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """One line of the report's `checks`."""

    rule: str
    outcome: Outcome
    reason: str | None = None
    findings: tuple[Finding, ...] = ()

    @classmethod
    def of(cls, rule: str, findings: Sequence[Finding], reason: str | None = None) -> RuleResult:
        """What was found decides; without findings a reason means that there was nothing to judge."""
        if findings:
            return cls(rule=rule, outcome=Outcome.FINDINGS, findings=tuple(findings))
        return cls(rule=rule, outcome=Outcome.OK if reason is None else Outcome.SKIPPED, reason=reason)

    @property
    def failed(self) -> bool:
        """Whether a check that requires this rule has no usable input."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def select(chosen: Sequence[str], ignored: Sequence[str], table: Mapping[str, Rule]) -> list[Rule]:
    """Rules by id or prefix (`QNT`, `CKP101`). Raises UsageError for a name that matches no rule."""
    for pattern in (*chosen, *ignored):
        if not any(rule.startswith(pattern.upper()) for rule in table):
            raise UsageError(f"no rule is called {pattern!r}: `degarble rules` lists them")
    wanted = [rule for rule in table.values() if not chosen or _matches(rule.id, chosen)]
    return [rule for rule in wanted if not _matches(rule.id, ignored)]


def _matches(rule: str, patterns: Iterable[str]) -> bool:
    return any(rule.startswith(pattern.upper()) for pattern in patterns)


def run(evidence: Evidence, selected: Sequence[Rule], policy: Policy = NO_POLICY) -> list[RuleResult]:
    """Run the selected rules, those that others require first. Never raises for what a check does.

    Findings that `policy` accepts stay among a rule's own, marked: what they make unusable is unusable all the same.
    """
    results: dict[str, RuleResult] = {}
    settings: Settings = evidence.get("settings")
    for rule in _in_order(selected):
        results[rule.id] = _run_rule(rule, evidence, results, settings, policy)
    return [results[rule.id] for rule in selected]


def _in_order(selected: Sequence[Rule]) -> list[Rule]:
    """Depth first along `requires`; rules that are not selected cannot block."""
    by_id = {rule.id: rule for rule in selected}
    order: dict[str, Rule] = {}

    def visit(rule: Rule, path: tuple[str, ...]) -> None:
        for needed in sorted(rule.requires):
            if needed in by_id and needed not in order and needed not in path:
                visit(by_id[needed], (*path, rule.id))
        order.setdefault(rule.id, rule)

    for rule in selected:
        visit(rule, ())
    return list(order.values())


def _run_rule(
    rule: Rule, evidence: Evidence, results: Mapping[str, RuleResult], settings: Settings, policy: Policy
) -> RuleResult:
    """A rule with several checks is `ok` if one of them ran and none found anything."""
    findings: list[Finding] = []
    reasons: list[str] = []
    ran = False
    for facts in rule.checks:
        reason = _blocked(facts, results, settings)
        if reason is None:
            try:
                findings += map(policy.judged, _run_check(facts, rule, evidence))
                ran = True
            except EvidenceMissing as missing:
                reason = _skipped(missing, rule, evidence)
            except ModuleNotFoundError as error:
                reason = _skipped(MissingExtra(error), rule, evidence)
            except Exception as error:
                log.debug("%s crashed\n%s", rule.id, traceback.format_exc())
                crash = f"{type(error).__name__}: {error} ({_where(error)})"
                return RuleResult(rule=rule.id, outcome=Outcome.CRASHED, reason=crash, findings=tuple(fold(findings)))
        if reason is not None and reason not in reasons:
            reasons.append(reason)
    if findings:
        return RuleResult(rule=rule.id, outcome=Outcome.FINDINGS, findings=tuple(fold(findings)))
    if ran:
        return RuleResult(rule=rule.id, outcome=Outcome.OK)
    return RuleResult(rule=rule.id, outcome=Outcome.SKIPPED, reason="; ".join(reasons))


def _skipped(missing: EvidenceMissing, rule: Rule, evidence: Evidence) -> str:
    """The reason of a skip; what was given and could not be judged keeps the report from saying `ok`."""
    if isinstance(missing, EvidenceUnjudged):
        evidence.coverage.add(str(missing), f"{rule.id} could not judge it")
    return str(missing)


def _blocked(facts: Check, results: Mapping[str, RuleResult], settings: Settings) -> str | None:
    if facts.level is Level.CONTENT and settings.level is Level.HEADER:
        return NOT_AT_HEADER_LEVEL
    for needed in facts.requires:
        if needed in results and results[needed].failed:
            return f"its input is unusable: {needed} failed"
    return None


def _run_check(facts: Check, rule: Rule, evidence: Evidence) -> list[Finding]:
    inputs = evidence.gather(facts.needs)
    return [
        replace(
            finding,
            rule=rule.id,
            name=rule.name,
            severity=finding.severity or facts.severity,
            confidence=finding.confidence or facts.confidence,
        )
        for finding in facts.function(*inputs) or ()
    ]


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else "unknown place"
