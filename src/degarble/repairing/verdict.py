"""Whether a step helped: its cause is gone, and nothing new appeared.

Places are compared, not messages or numbers: a folded finding that lost some of its places is progress, one that names
a place it did not name before is new. A rule that could not run before the step has revealed what it now finds.
"""

from __future__ import annotations

from collections.abc import Sequence

from degarble.finding import Finding, Location, Severity
from degarble.repairing.step import Step
from degarble.report.interface import Report
from degarble.runner import Outcome

Place = tuple[object, ...]


def place_of(place: Location) -> Place:
    """The finest name of a place; its file only where there is nothing finer."""
    finest = place.module or place.tensor or place.key
    return (finest, place.token, place.layer, place.expert, None if finest or place.layer is not None else place.file)


def places_of(finding: Finding) -> frozenset[Place]:
    """All places of a finding."""
    return frozenset(map(place_of, finding.all_places))


def known_places(report: Report) -> dict[str, set[Place]]:
    """Rule -> every place at which it found something, accepted or not."""
    known: dict[str, set[Place]] = {}
    for finding in (*report.findings, *report.accepted):
        known.setdefault(finding.rule, set()).update(places_of(finding))
    return known


def left_of(finding: Finding, after: Report) -> frozenset[Place]:
    """The places of a finding at which its rule still finds something that counts."""
    found = {p for one in after.findings if _counts(one) and one.rule == finding.rule for p in places_of(one)}
    return places_of(finding) & found


def new_findings(before: Report, after: Report) -> list[Finding]:
    """What rules that ran before find now at places where they found nothing."""
    known = known_places(before)
    ran = {result.rule for result in before.results if result.outcome in (Outcome.OK, Outcome.FINDINGS)}
    return [
        finding
        for finding in after.findings
        if _counts(finding) and finding.rule in ran and not places_of(finding) <= known.get(finding.rule, set())
    ]


def objection(before: Report, after: Report, steps: Sequence[Step]) -> str | None:
    """Why these steps together did not help; None if they did."""
    crashed = [result for result in after.results if result.outcome is Outcome.CRASHED]
    if after.failure is not None or len(crashed) > before.count(Outcome.CRASHED):
        return after.failure or f"a check crashes on the result: {crashed[0].rule}"
    appeared = [finding for finding in new_findings(before, after) if not _is_revealed(finding, steps)]
    if appeared:
        return f"it would bring a new finding: {appeared[0].rule} at {appeared[0].location.name()}"
    for step in steps:
        if _is_silenced(step, after):
            return f"{step.finding.rule} could no longer be judged after it"
        if len(left_of(step.finding, after)) >= len(places_of(step.finding)):
            return f"{step.finding.rule} is still found after it"
    return None


def _is_revealed(finding: Finding, steps: Sequence[Step]) -> bool:
    """Exact copies cause nothing elsewhere: what is found at other places now was hidden before."""
    if not all(step.is_copy for step in steps):
        return False
    return not any(step.touches(place) for step in steps for place in finding.all_places)


def _is_silenced(step: Step, after: Report) -> bool:
    """A rule that does not run any more proves nothing; but copies are proven before they are made, and somebody
    answers for a judgement.
    """
    if not step.is_safe or step.is_copy:
        return False
    result = next((result for result in after.results if result.rule == step.finding.rule), None)
    return result is not None and result.outcome is Outcome.SKIPPED


def _counts(finding: Finding) -> bool:
    return finding.severity is not Severity.INFO
