"""Several causes at once: repair a copy in memory, check again, go on with what that uncovers.

A repair proves its cause where the rule falls silent with one component exchanged and nothing else changed. What only shows
after another cause is gone (a rule whose input was unusable) is added to the causes.
"""

from __future__ import annotations

from degarble.diagnosing.gathering import source_of
from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.diagnosing.joining import Joined
from degarble.diagnosis.hypothesis import proven_by
from degarble.evidence import Settings
from degarble.repairing.plan import Plan, Planner
from degarble.repairing.step import Step
from degarble.target import open_target

MAX_NAMED = 3
"""Places of a repair that a proof names."""


def peel(inputs: DiagnosisInputs, causes: list[Joined]) -> Plan | None:
    """Repair what can be repaired, prove what that proves, add what it uncovers. None: no finding on files."""
    mine = [one for one in causes if one.found_by == "check"]
    if not mine or "target" not in inputs.available():
        return None
    reference = None if inputs.reference is None else open_target(inputs.reference)
    plan = Planner(source_of(inputs), Settings(), reference=reference).plan()
    first = {(cause.finding.rule, cause.finding.location) for cause in plan.before.causes}
    for step in plan.steps:
        if (step.finding.rule, step.finding.location) not in first:
            _take_out(causes, step)
        one = next((c for c in causes if _is_same(c, step)), None)
        if one is None:
            one = Joined(finding=step.finding, found_by="peeling", hypotheses=proven_by(step.finding.rule))
            causes.append(one)
        _prove(one, step, plan)
    known = {(one.finding.rule, one.finding.location) for one in causes} | {
        (f.rule, f.location) for one in causes for f in one.symptoms
    }
    for cause in plan.after.causes:
        if (cause.finding.rule, cause.finding.location) not in known:
            causes.append(
                Joined(
                    finding=cause.finding,
                    symptoms=list(cause.symptoms),
                    found_by="peeling",
                    hypotheses=proven_by(cause.finding.rule),
                )
            )
    return plan


def _take_out(causes: list[Joined], step: Step) -> None:
    """What needed a repair of its own, after that of the cause it was put under, is no symptom of it."""
    for one in causes:
        one.symptoms = [
            finding
            for finding in one.symptoms
            if (finding.rule, finding.location) != (step.finding.rule, step.finding.location)
        ]


def _is_same(one: Joined, step: Step) -> bool:
    """Whether the step repaired the cause, or what it explains."""
    return any(
        own.rule == step.finding.rule and step.finding.location in (own.location, *own.all_places)
        for own in (one.finding, *one.symptoms)
    )


def _prove(one: Joined, step: Step, plan: Plan) -> None:
    """In words: what was exchanged, and that the rule found nothing afterwards."""
    names = dict.fromkeys(edit.tensor or edit.key or edit.file or "" for edit in step.edits)
    what = ", ".join(list(names)[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" * (len(names) > MAX_NAMED))
    is_gone = all(f.rule != one.finding.rule for f in plan.after.findings)
    one.repair = one.repair or step.repair
    if is_gone and one.proof_kind != "counterfactual":
        one.proof_kind = "counterfactual" if step.is_copy else "repair"
        swapped = "with the healthy component swapped in" if step.is_copy else f"after {step.repair}"
        one.proof = f"{swapped} ({what}), {one.finding.rule} finds nothing any more"
