"""ENG703: a fault of an engine that is known upstream, and whose conditions this checkpoint meets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from degarble.engines.known_issues import KnownIssue, KnownIssues
from degarble.evidence.store import Settings
from degarble.finding import Confidence, Finding, Fix, Location, Severity
from degarble.methods.interface import Declaration
from degarble.registry import check

CONFIDENCES = {
    "merged fix": Confidence.LIKELY,
    "maintainer word": Confidence.LIKELY,
    "reporter": Confidence.HINT,
}

SPOKEN_FOR = (
    "CKP102",
    "CKP103",
    "CFG104",
    "CFG105",
    "CFG107",
    "CFG110",
    "QNT101",
    "QNT102",
    "QNT104",
    "QNT105",
    "QNT106",
    "QNT107",
    "QNT108",
    "QNT109",
    "QNT110",
    "QNT111",
    "QNT112",
    "QNT113",
    "QNT114",
    "QNT116",
    "QNT117",
    "QNT118",
    "QNT119",
    "QNT120",
    "ENG702",
)
"""Rules that find the cause itself; the issue then only says what an engine makes of it."""


@check("ENG703", severity=Severity.WARNING, confidence=Confidence.LIKELY, symptom_of=SPOKEN_FOR)
def known_issue(
    engine_facts: Mapping[str, object],
    known_issues: KnownIssues,
    settings: Settings,
    declaration: Declaration | None = None,
) -> Iterator[Finding]:
    """An engine is known to get checkpoints like this one wrong.

    ## What it looks for
    A dated list of faults of engines, each with conditions: format, bit width, shapes, skip entries, model type, degree
    of parallelism, dtype, version. An issue is named only if every condition is positively met; what is not known
    counts as not met. `--engine NAME@VERSION` narrows the list to what concerns that version, and turns a hit into an
    error.

    ## Why output turns to garbage
    The checkpoint is sound and the engine is not: a kernel with a wrong tail, a label that is ignored, a slot that is
    never filled. No inspection of the file alone can find that; somebody else already did.

    ## What you will see
    What the finding says: each issue has its own symptom.

    ## How to tell it from its look-alikes
    Without `--engine` an issue that only its reporter has seen, or that was fixed upstream in a release that is not
    known, is an info, since it is not known which engine will be used. An issue that is fixed in the named version
    is silent. Where another rule finds the fault in the file itself, this finding is its symptom.

    ## How to confirm
    Open the link, compare versions, and run the same prompt in another engine or a later version.

    ## How to repair it
    The way out is in the finding. It concerns the engine or the command line, so nothing is done to the file.

    ## References
    The link of each issue is in the finding. The list can be replaced by one of your own.
    """
    for issue in known_issues.matching(engine_facts, settings.engine, settings.engine_version):
        yield _finding(issue, settings, declaration)


def _finding(issue: KnownIssue, settings: Settings, declaration: Declaration | None) -> Finding:
    place = Location() if declaration is None else Location(file=declaration.file, key=declaration.key or None)
    versions = f" {issue.versions}" if issue.versions else ""
    return Finding(
        location=place,
        message=f"{issue.engine}{versions}: {issue.title} ({issue.standing}); way out: {issue.way_out}; {issue.link}",
        severity=_severity(issue, settings),
        confidence=CONFIDENCES[issue.evidence],
        measured={"issue": issue.id, "engine": issue.engine, "link": issue.link, "evidence": issue.evidence},
        bound={"fixed_in": issue.fixed_in or None},
        predicts=issue.consequence,
        fix=Fix(id="use-another-engine-version", safe=False),
        fold=issue.id,
    )


def _severity(issue: KnownIssue, settings: Settings) -> Severity:
    """Error for a version that is known to be affected; info, as long as nobody named an engine, for a single report
    and for what was fixed upstream in a release that is not known.
    """
    if settings.engine is None:
        is_past = issue.evidence == "merged fix" and not issue.fixed_in and not issue.versions
        return Severity.INFO if is_past or issue.evidence == "reporter" else Severity.WARNING
    return Severity.ERROR if issue.covers(settings.engine_version) else Severity.WARNING
