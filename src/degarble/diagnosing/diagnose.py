"""`diagnose`: what one has in, ranked causes with proof out. Nothing is guessed: without a finding there is no cause."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from degarble.diagnosing.account import account
from degarble.diagnosing.gathering import Gathered, gather
from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.diagnosing.joining import Joined, join, numbered
from degarble.diagnosing.peeling import peel
from degarble.errors import DegarbleError
from degarble.report.interface import Report, Target
from degarble.runner import Outcome, RuleResult

STATE_PARTS = frozenset({"kv cache", "engine"})
"""Parts that a replay on fresh state exchanges."""


def diagnose(inputs: DiagnosisInputs) -> Report:
    """Gather what the inputs allow, join it, repair a copy, and account for all of it.

    Raises UsageError where there is nothing to start from, and TargetError for an incident that cannot be read. What is
    wrong with other inputs is in the report, under what was not judged.
    """
    started = time.monotonic()
    known = gather(inputs)
    causes, notes = join(known)
    _prove_by_replay(known, causes)
    plan = None
    try:
        plan = peel(inputs, causes)
    except DegarbleError as error:
        known.not_run["repair"] = str(error)
    causes.sort(key=_weight)
    findings, made = numbered(causes, notes)
    unjudged = _unjudged(known)
    if not causes and (known.observations or (known.understood is not None)):
        unjudged["symptom"] = "no cause was found for what was seen; see what to find out next"
    is_dark = not known.reports and known.understood is None and known.bundle is None
    return Report(
        target=_target(inputs, known),
        findings=findings,
        causes=made,
        results=_results(known),
        unjudged=unjudged,
        profile=next((one.profile for one in known.reports.values() if one.profile is not None), None),
        comparison=next((r.comparison for name, r in known.reports.items() if name == "walk"), None),
        failure="; ".join(known.not_run.values()) or "nothing could be checked" if is_dark else None,
        diagnosis=account(inputs, known, causes, made, plan, time.monotonic() - started),
    )


def _weight(one: Joined) -> tuple[int, int, bool, int, str, str]:
    """Severity, confidence, proof, findings explained."""
    finding = one.finding
    severity = finding.severity.rank if finding.severity else 0
    confidence = finding.confidence.rank if finding.confidence else 0
    return (severity, confidence, not one.proof, -len(one.symptoms), finding.rule, finding.fingerprint)


def _prove_by_replay(known: Gathered, causes: list[Joined]) -> None:
    """Other ids from the same request on the same files: what was swapped in is the state of the server."""
    told = known.reports["replay"].comparison if "replay" in known.reports else None
    place = told.get("first_difference") if told else None
    if not isinstance(place, int) or not told or not told.get("is_exact"):
        return
    for one in causes:
        if one.found_by in ("bundle", "trace"):
            one.proof_kind = "counterfactual"
            one.proof = (
                "with a healthy cache swapped in (the same request, alone, on the same files) the answer is another one "
                f"from token {place} on"
            )


def _target(inputs: DiagnosisInputs, known: Gathered) -> Target:
    """The first that was given; formats of all."""
    paths = (inputs.target, inputs.endpoint, ", ".join(inputs.trace), inputs.incident)
    path = next((path for path in paths if path), "")
    formats = tuple(dict.fromkeys(form for report in known.reports.values() for form in report.target.formats))
    kinds = {name: report.target.kind for name, report in known.reports.items()}
    return Target(path=path, kind=next(iter(kinds.values()), "incident"), formats=formats)


def _results(known: Gathered) -> tuple[RuleResult, ...]:
    """Each rule once; findings in one experiment outweigh silence in another."""
    order = (Outcome.FINDINGS, Outcome.CRASHED, Outcome.OK, Outcome.SKIPPED)
    found: dict[str, RuleResult] = {}
    for report in known.reports.values():
        for result in report.results:
            old = found.get(result.rule)
            if old is None or order.index(result.outcome) < order.index(old.outcome):
                found[result.rule] = replace(result, findings=())
    return tuple(found.values())


def _unjudged(known: Gathered) -> dict[str, str]:
    """What was given and could not be judged."""
    found: dict[str, str] = {}
    for report in known.reports.values():
        found.update(_plain(report.unjudged))
    return found | known.not_run


def _plain(values: Mapping[str, str]) -> dict[str, str]:
    return {str(key): str(value) for key, value in values.items()}
