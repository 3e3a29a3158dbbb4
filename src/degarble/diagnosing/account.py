"""The account of a diagnosis, as plain values: what the page tells and the document keeps under `diagnosis`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from degarble.diagnosing.gathering import Gathered
from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.diagnosing.joining import Joined
from degarble.diagnosis import Cause
from degarble.diagnosis.experiment_plan import possible
from degarble.diagnosis.hypothesis import experiments, hypotheses, symptoms
from degarble.diagnosis.likelihood import Belief
from degarble.finding import Finding
from degarble.repairing.plan import Plan

MAX_NEXT = 5
MAX_BELIEFS = 6
ABOVE_CHANCE = 0.15
"""Beliefs that are worth a line: the largest prior is 0.1."""
MANUAL = "operator"


def account(
    inputs: DiagnosisInputs,
    known: Gathered,
    causes: Sequence[Joined],
    made: Sequence[Cause],
    plan: Plan | None,
    seconds: float,
) -> Mapping[str, object]:
    """Everything beside the findings."""
    beliefs = known.beliefs()
    by_name = {one.name: one for one in beliefs}
    told = [_cause(inputs, one, head.finding, by_name) for one, head in zip(causes, made, strict=True)]
    return {
        "summary": summary(known, causes, plan, seconds),
        "timeline": list(_timeline(known)),
        "causes": told,
        "candidates": [_belief(one) for one in beliefs if one.probability >= ABOVE_CHANCE][:MAX_BELIEFS],
        "experiments": [
            {"name": name, "title": experiments()[name].title, "seconds": round(known.seconds[name], 2),
             "found": len(report.causes)}
            for name, report in known.reports.items()
        ],
        "next": _next(inputs, known) if _is_open(known, causes) else [],
        "said": _said(known),
        "repair": _repair(inputs, plan),
        "not_checked": dict(known.not_run),
        "seconds": round(seconds, 1),
    }  # fmt: skip


def summary(known: Gathered, causes: Sequence[Joined], plan: Plan | None, seconds: float) -> list[str]:
    """Three sentences: what is wrong, how that is known, what to do."""
    if not known.reports:
        return [
            "Nothing was checked: words and what a guard said prove no cause.",
            f"{len(known.observations)} symptoms of the table fit.",
            "What to find out next is listed below.",
        ]
    ran = ", ".join(experiments()[name].title for name in known.reports) or "nothing but words"
    if not causes:
        seen = "; ".join(one.what for one in known.observations)
        return [
            f"Nothing wrong was found{f', although something was seen ({seen})' if seen else ''}.",
            f"Looked at: {ran}, in {seconds:.1f} s.",
            "Nothing has to be repaired." if not seen else "What to find out next is listed below.",
        ]
    names = [f"{one.finding.rule} {one.finding.name} ({part_of(one)})" for one in causes[:3]]
    more = f" and {len(causes) - 3} more" if len(causes) > 3 else ""
    proven = sum(bool(one.proof) for one in causes)
    repaired = len(plan.steps) if plan is not None else 0
    return [
        f"{len(causes)} {'cause was' if len(causes) == 1 else 'causes were'} found: {', '.join(names)}{more}.",
        f"Looked at: {ran}, in {seconds:.1f} s; {proven} of {len(causes)} were proven by exchanging a part.",
        f"{repaired} repairs were made in a copy and checked again." if repaired else "Repairs are listed by cause.",
    ]


def part_of(one: Joined) -> str:
    """What a healthy copy would be swapped in for."""
    return hypotheses()[one.hypotheses[0]].part if one.hypotheses else "not named by the table"


def _cause(inputs: DiagnosisInputs, one: Joined, head: Finding, beliefs: Mapping[str, Belief]) -> dict[str, Any]:
    best = one.hypotheses[0] if one.hypotheses else None
    return {
        "finding": head.id,
        "rule": head.rule,
        "part": part_of(one),
        "hypothesis": best,
        "title": hypotheses()[best].title if best else head.name,
        "probability": round(beliefs[best].probability, 4) if best else None,
        "reasons": list(beliefs[best].reasons) if best else [],
        "found_by": one.found_by,
        "proof_kind": one.proof_kind if one.proof else "rule",
        "proof": one.proof or f"the rule's own evidence ({head.confidence})",
        "repair": one.repair or (hypotheses()[best].remedy if best else "see the page of the rule"),
        "blast_radius": _blast_radius(one),
        "regression_test": _regression_test(inputs, one),
    }


def _blast_radius(one: Joined) -> str:
    """Which requests are hit, as far as it is known."""
    places = one.finding.all_places
    requests = sorted({place.request for place in places if place.request})
    requests += sorted({p.request for s in one.symptoms for p in s.all_places if p.request} - set(requests))
    if requests:
        more = f" and {len(requests) - 10} more" if len(requests) > 10 else ""
        return f"requests {', '.join(requests[:10])}{more}, and whoever shares their blocks"
    part = part_of(one)
    if part in ("weights", "config", "arithmetic"):
        layers = sorted({place.layer for place in places if place.layer is not None})
        return "every request" + (f"; layers {', '.join(map(str, layers[:20]))}" if layers else "")
    if part == "tokenizer":
        tokens = sorted({place.token for place in places if place.token})
        return (
            "prompts and answers with the tokens " + ", ".join(tokens[:10]) if tokens else "every prompt with such text"
        )
    if part == "template":
        return "every chat request"
    if part == "kv cache":
        return "requests that are computed beside or after others"
    return "not known"


def _regression_test(inputs: DiagnosisInputs, one: Joined) -> str:
    """A command that fails as long as the cause is there."""
    rule = one.finding.rule
    if one.found_by in ("trace", "bundle"):
        return f"degarble trace TRACE --select {rule}"
    if one.found_by == "probe":
        return f"degarble probe URL --select {rule}"
    if rule.startswith(("DIV", "NUM307")):
        return "degarble compare TARGET HEALTHY"
    reference = " --reference HEALTHY" if inputs.reference else ""
    return f"degarble check TARGET{reference} --select {rule} --fail-on {one.finding.severity or 'error'}"


def _timeline(known: Gathered) -> Iterator[dict[str, Any]]:
    """From the incident's own time, then line by line of the trace, then what was done."""
    if known.bundle is not None:
        one = known.bundle
        said = f"guard {one.guard} in request {one.request}, after {one.num_output} tokens: {one.message}"
        yield {"when": one.time or "time not kept", "what": said}
    for name in ("trace", "bundle"):
        if name in known.reports:
            lines = [f for f in known.reports[name].findings if f.location.line is not None]
            for finding in sorted(lines, key=lambda f: f.location.line or 0)[:10]:
                yield {"when": f"line {finding.location.line}", "what": f"{finding.rule} {finding.message}"}
    passed = 0.0
    for name, report in known.reports.items():
        passed += known.seconds[name]
        yield {"when": f"+{passed:.1f} s", "what": f"{experiments()[name].title}: causes found: {len(report.causes)}"}


def _is_open(known: Gathered, causes: Sequence[Joined]) -> bool:
    """Whether something was seen that nothing found explains, or that is found and not understood."""
    unexplained = any(one.found_by == "probe" for one in causes)
    return unexplained or (not causes and (bool(known.observations) or known.understood is not None))


def _next(inputs: DiagnosisInputs, known: Gathered) -> list[dict[str, Any]]:
    """What to find out, the most telling for its time first, each with what it needs that is not there."""
    available = inputs.available()
    choices = known.next_choices()
    affordable = {one.name for one in possible(choices, available, inputs.budget_seconds)}
    return [
        {
            "name": one.name,
            "title": one.experiment.title,
            "command": one.experiment.command,
            "seconds": one.experiment.seconds,
            "bits": round(one.bits, 3),
            "missing": sorted(set(one.experiment.needs) - available),
            "is_affordable": one.name in affordable,
            "answers": {answer: list(names) for answer, names in one.experiment.answers.items()},
        }
        for one in choices[:MAX_NEXT]
    ]


def _said(known: Gathered) -> dict[str, Any] | None:
    if known.understood is None:
        return None
    rows = [{"row": number, "title": symptoms()[number].title} for number in known.understood.rows]
    return {"rows": rows, "unknown": list(known.understood.unknown)}


def _belief(one: Belief) -> dict[str, Any]:
    return {
        "hypothesis": one.name,
        "title": hypotheses()[one.name].title,
        "probability": round(one.probability, 4),
        "reasons": list(one.reasons),
    }


def _repair(inputs: DiagnosisInputs, plan: Plan | None) -> dict[str, Any] | None:
    """The command, its steps, and what the repaired copy was found to be."""
    if plan is None:
        return None
    reference = f" --reference {inputs.reference}" if inputs.reference else ""
    return {
        "command": f"degarble fix {inputs.target or 'TARGET'}{reference} --out REPAIRED",
        "steps": [{"repair": step.repair, "rule": step.finding.rule, "safe": step.is_safe} for step in plan.steps],
        "refused": [{"rule": one.finding.rule, "reason": one.reason} for one in plan.refused],
        "verified": f"checked again: {plan.after.status.value}, causes left: {len(plan.after.causes)}",
    }
