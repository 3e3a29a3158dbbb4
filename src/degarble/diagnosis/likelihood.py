"""How much the evidence speaks for each hypothesis: log-odds that are added up, each hypothesis for itself.

Several things can be wrong at once, so the hypotheses are no partition and their probabilities need not sum to one: each
is true or not, independently (a noisy-or of causes). One piece of evidence e changes the log-odds of a hypothesis h by
ln P(e | h) - ln P(e | not h). These ratios are ours and coarse:

    a rule of h speaks           proven +6 (one in 400), likely +4, hint +2; a third where another finding explains it
    the rules of h ran silently  -3 times the share of them that ran: what a rule cannot see remains possible
    a symptom is seen            +2.0 for the first cause of its row, 0.4 less for each rank, at least +0.4;
                                 -1.5 where no row of the symptom names h
    an experiment did not run    nothing: that is no evidence

A symptom that several rows fit counts once, by the row that suits the hypothesis best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from degarble.diagnosis.hypothesis import Hypothesis, hypotheses, symptoms
from degarble.finding import Confidence, Finding, Role, Severity
from degarble.runner import Outcome

SPEAKS = {Confidence.PROVEN: 6.0, Confidence.LIKELY: 4.0, Confidence.HINT: 2.0}
EXPLAINED = 1 / 3
SILENT = -3.0
FIRST_RANK, RANK_STEP, LAST_RANK, NOT_NAMED = 2.0, 0.4, 0.4, -1.5


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """A symptom that somebody or something saw."""

    what: str
    rows: tuple[int, ...]


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """One hypothesis after the evidence."""

    name: str
    log_odds: float
    reasons: tuple[str, ...]

    @property
    def probability(self) -> float:
        """Of this hypothesis for itself."""
        return 1.0 / (1.0 + math.exp(-max(min(self.log_odds, 60.0), -60.0)))


def beliefs(
    findings: Sequence[Finding], outcomes: Mapping[str, Outcome], observations: Sequence[Observation]
) -> tuple[Belief, ...]:
    """Every hypothesis, the most probable first."""
    found = [_belief(name, one, findings, outcomes, observations) for name, one in hypotheses().items()]
    return tuple(sorted(found, key=lambda one: (-one.log_odds, one.name)))


def _belief(
    name: str,
    one: Hypothesis,
    findings: Sequence[Finding],
    outcomes: Mapping[str, Outcome],
    observations: Sequence[Observation],
) -> Belief:
    terms = [*_from_rules(one, findings, outcomes), *(_from_symptom(name, seen) for seen in observations)]
    odds = math.log(one.prior / (1 - one.prior)) + sum(weight for weight, _ in terms)
    return Belief(name=name, log_odds=odds, reasons=tuple(f"{weight:+.1f} {why}" for weight, why in terms))


def _from_rules(
    one: Hypothesis, findings: Sequence[Finding], outcomes: Mapping[str, Outcome]
) -> list[tuple[float, str]]:
    """The strongest finding of each rule; or that they ran and said nothing."""
    spoken: dict[str, float] = {}
    for finding in findings:
        if finding.rule in one.rules and finding.severity is not Severity.INFO:
            weight = SPEAKS[finding.confidence or Confidence.PROVEN]
            weight *= EXPLAINED if finding.role is Role.SYMPTOM else 1.0
            spoken[finding.rule] = max(weight, spoken.get(finding.rule, 0.0))
    if spoken:
        return [(weight, f"{rule} speaks") for rule, weight in spoken.items()]
    ran = [rule for rule in one.rules if outcomes.get(rule) is Outcome.OK]
    return [(SILENT * len(ran) / len(one.rules), f"{', '.join(ran)} ran and found nothing")] if ran else []


def _from_symptom(name: str, seen: Observation) -> tuple[float, str]:
    ranks = [symptoms()[row].causes.index(name) for row in seen.rows if name in symptoms()[row].causes]
    if not ranks:
        return NOT_NAMED, f"{seen.what}: not among the causes"
    return max(FIRST_RANK - RANK_STEP * min(ranks), LAST_RANK), f"{seen.what}: cause number {min(ranks) + 1} of its row"
