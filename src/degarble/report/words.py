"""A finding in words: where it is, what was measured, and what the page of its rule says. Shared by the writers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from degarble.finding import MAX_ALSO, Finding, Measure, Severity
from degarble.policy.policy import WaiverState
from degarble.registry import rules
from degarble.report.interface import Report, Status, Words

HEADLINES = {
    Status.OK: "nothing wrong found",
    Status.PARTIAL: "nothing wrong found, but not everything could be judged",
    Status.ERROR: "could not be checked",
}


def headline(report: Report) -> str:
    """The result in one phrase: errors, warnings and causes, or the status."""
    if report.status is not Status.FINDINGS:
        return HEADLINES[report.status]
    counts = [plural(n, kind) for kind in ("error", "warning") if (n := report.summary[kind])]
    return f"{' and '.join(counts)}, {plural(len(report.causes), 'cause')}"


def plural(number: int, noun: str) -> str:
    """`1 cause`, `2 causes`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def words_of(report: Report, finding: Finding) -> Words:
    """Story, prediction, confirmation and repair of a finding's rule; what the finding knows better goes first."""
    page, saved = _page(finding.rule), report.words.get(finding.rule, Words())
    return Words(
        story=saved.story or page.story,
        predicts=finding.predicts or saved.predicts or page.predicts,
        confirm=saved.confirm or page.confirm,
        repair=page.repair,
    )


@cache
def _page(rule: str) -> Words:
    known = rules().get(rule)
    if known is None:
        return Words()
    return Words(**{part: " ".join(known.section(part).split()) for part in Words.__struct_fields__})


def where(finding: Finding) -> str:
    """The place, with the numbers that lead into it; of a folded finding its first names and how many there are."""
    place = finding.location
    also = also_names(finding)
    if also:
        count = len(finding.all_places)
        return f"{', '.join([place.name(), *also[:3]])}{' …' * (count > 4)} ({count:,} places)"
    extra = [f"{k} {v}" for k, v in place.as_dict().items() if k not in ("file", "tensor", "module", "key")]
    key = f", key {place.key}" if place.key and (place.tensor or place.module) else ""
    return place.name() + key + (f" ({', '.join(extra)})" if extra else "")


def also_names(finding: Finding) -> list[str]:
    """Names of the further places of a folded finding, as many as a report lists."""
    return [place.short_name() for place in finding.places[1 : MAX_ALSO + 1]]


def measured(finding: Finding) -> str:
    """Numbers and the bound they broke, in one line; empty if nothing was measured."""
    if not finding.measured:
        return ""
    return numbers(finding.measured) + (f"; bound {numbers(finding.bound)}" if finding.bound else "")


def numbers(values: Mapping[str, Measure]) -> str:
    """`name value, name value`."""
    return ", ".join(f"{name} {number(value)}" for name, value in values.items())


def number(value: Measure) -> str:
    """A measured value, short."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        shown = ", ".join(number(item) for item in value[:MAX_ALSO])
        return f"[{shown}{', …' * (len(value) > MAX_ALSO)}]"
    return str(value)


def accepted_note(report: Report) -> str:
    """How many findings do not count, and who decided that; empty where all count."""
    if not report.accepted:
        return ""
    kinds = Counter(finding.accepted.kind for finding in report.accepted if finding.accepted)
    told = ", ".join(f"{number} by {kind}" for kind, number in kinds.items())
    return f"{plural(len(report.accepted), 'finding')} accepted ({told})"


def waiver_notes(report: Report) -> list[str]:
    """Waivers that are past their date or met nothing."""
    return [
        f"waiver {state.value}: {waiver.rule} for {waiver.scope} ({waiver.reason})"
        + (f", expired {waiver.expires}" if state is WaiverState.EXPIRED else "")
        for waiver, state in report.waivers
        if state is not WaiverState.USED
    ]


def severity_of(finding: Finding) -> Severity:
    """A finding that nobody gave a severity counts as the worst."""
    return finding.severity or Severity.ERROR
