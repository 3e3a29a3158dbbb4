"""A report from what the rules found: findings sorted into causes and symptoms, accepted ones set apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from degarble.diagnosis import diagnose
from degarble.policy.policy import NO_POLICY, Policy
from degarble.registry import Rule
from degarble.report.interface import Report, Target
from degarble.runner import Outcome, RuleResult

JUDGED = (Outcome.OK, Outcome.FINDINGS, Outcome.CRASHED)


def judged_report(
    target: Target,
    results: Sequence[RuleResult],
    rules: Mapping[str, Rule],
    *,
    unjudged: Mapping[str, str],
    policy: Policy = NO_POLICY,
    profile: Mapping[str, object] | None = None,
    comparison: Mapping[str, Any] | None = None,
) -> Report:
    """Every command that runs rules ends here; `rules` are those that may be causes. Nothing judged is the failure."""
    every = [finding for result in results for finding in result.findings]
    accepted = tuple(finding for finding in every if finding.accepted is not None)
    diagnosis = diagnose(
        [finding for finding in every if finding.accepted is None],
        {rule.id: rule.symptom_of for rule in rules.values()},
    )
    return Report(
        target=target,
        findings=diagnosis.findings,
        causes=diagnosis.causes,
        results=tuple(results),
        accepted=accepted,
        waivers=policy.waiver_states(accepted),
        unjudged=dict(unjudged),
        profile=profile,
        comparison=comparison,
        failure=None if any(result.outcome in JUDGED for result in results) else "nothing could be checked",
    )
