"""`check` before serving: a checkpoint with errors is refused, and everything else that was found is said."""

from __future__ import annotations

from collections.abc import Callable

from degarble.api import check_evidence
from degarble.errors import TargetError
from degarble.evidence import Evidence
from degarble.finding import Finding, Severity
from degarble.report.interface import Report

MAX_LINES = 20
HINT = "degarble check shows all of it; --allow-broken serves it all the same"


def admit(evidence: Evidence, say: Callable[[str], None], *, allow_broken: bool) -> Report:
    """Check, and say what was found. Raises TargetError for a checkpoint with errors, or one that cannot be checked."""
    report = check_evidence(evidence)
    if report.failure is not None:
        raise TargetError(report.failure)
    told = [one for one in report.findings if one.severity in (Severity.ERROR, Severity.WARNING)]
    for finding in told[:MAX_LINES]:
        say(_line(finding))
    if len(told) > MAX_LINES:
        say(f"{len(told) - MAX_LINES} further findings")
    for what, reason in report.unjudged.items():
        say(f"not judged: {what}: {reason}")
    errors = sorted({one.rule for one in told if one.severity is Severity.ERROR})
    crashed = [result.rule for result in report.results if result.outcome == "crashed"]
    if crashed:
        say(f"not judged: {', '.join(crashed)} crashed, which is a bug of ours")
    if errors and not allow_broken:
        raise TargetError(f"{report.target.path}: is broken ({', '.join(errors)}) and is not served: {HINT}")
    say(f"checked: {report.status.value}" + (", and served all the same" if errors else ""))
    return report


def _line(finding: Finding) -> str:
    severity = finding.severity.value if finding.severity is not None else "note"
    return f"{severity} {finding.rule}: {finding.location.name()}: {finding.message}"
