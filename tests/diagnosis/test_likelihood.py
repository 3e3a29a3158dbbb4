"""Log-odds against sums by hand."""

from __future__ import annotations

import math

import pytest

from degarble.diagnosis.hypothesis import hypotheses, symptoms
from degarble.diagnosis.likelihood import Belief, Observation, beliefs
from degarble.finding import Confidence, Finding, Location, Role, Severity
from degarble.runner import Outcome


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def belief(name: str, *args: object) -> Belief:
    return next(one for one in beliefs(*args) if one.name == name)  # type: ignore[arg-type]


def found(rule: str, confidence: Confidence, role: Role = Role.CAUSE) -> Finding:
    return Finding(
        location=Location(), message="", rule=rule, severity=Severity.ERROR, confidence=confidence, role=role
    )


def test_without_evidence_a_belief_is_its_prior() -> None:
    for one in beliefs([], {}, []):
        assert one.probability == pytest.approx(hypotheses()[one.name].prior) and not one.reasons


@pytest.mark.parametrize(
    ("confidence", "role", "weight"),
    [
        (Confidence.PROVEN, Role.CAUSE, 6.0),
        (Confidence.LIKELY, Role.CAUSE, 4.0),
        (Confidence.HINT, Role.CAUSE, 2.0),
        (Confidence.PROVEN, Role.SYMPTOM, 2.0),
    ],
)
def test_a_rule_speaks(confidence: Confidence, role: Role, weight: float) -> None:
    prior = logit(hypotheses()["norm-wrong"].prior)
    assert belief("norm-wrong", [found("WGT217", confidence, role)], {}, []).log_odds == pytest.approx(prior + weight)


def test_silence_counts_by_the_share_of_rules_that_ran() -> None:
    rules = hypotheses()["half-overflow"].rules
    half = dict.fromkeys(rules[:2], Outcome.OK) | dict.fromkeys(rules[2:], Outcome.SKIPPED)
    prior = logit(hypotheses()["half-overflow"].prior)
    assert belief("half-overflow", [], half, []).log_odds == pytest.approx(prior - 3.0 * 2 / len(rules))


def test_a_symptom_favours_its_row_by_rank_and_what_did_not_run_is_no_evidence() -> None:
    seen = [Observation(what="seen", rows=(28,))]
    ranks = symptoms()[28].causes
    for rank in (0, 1, len(ranks) - 1):
        one = belief(ranks[rank], [], {"WGT201": Outcome.SKIPPED}, seen)
        assert one.log_odds == pytest.approx(logit(hypotheses()[one.name].prior) + max(2.0 - 0.4 * rank, 0.4))
    assert belief("adapter", [], {}, seen).log_odds == pytest.approx(logit(hypotheses()["adapter"].prior) - 1.5)


def test_an_info_is_no_evidence() -> None:
    note = Finding(location=Location(), message="", rule="WGT217", severity=Severity.INFO, confidence=Confidence.PROVEN)
    assert belief("norm-wrong", [note], {}, []).probability == pytest.approx(hypotheses()["norm-wrong"].prior)
