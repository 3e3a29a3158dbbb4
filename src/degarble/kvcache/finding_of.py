"""From a violation to a finding at a place of the declaration."""

from __future__ import annotations

from degarble.finding import Confidence, Finding, Location, Measure, Severity
from degarble.kvcache.contract import Violation


def finding_of(
    violation: Violation,
    file: str,
    *,
    prefix: str = "",
    name: str = "",
    severity: Severity | None = None,
    confidence: Confidence | None = None,
) -> Finding:
    """`prefix` leads to the group, `groups[2]`; `name` and `severity` are given where no check fills them in."""
    key = f"{prefix}.{violation.key}" if prefix else violation.key
    measured: dict[str, Measure] = dict(violation.measured)
    bound: dict[str, Measure] = dict(violation.bound)
    return Finding(
        location=Location(
            file=file,
            key=key,
            request=violation.request,
            position=violation.position,
            block=violation.block,
            layer=violation.layer,
        ),
        message=violation.message,
        severity=severity,
        confidence=confidence,
        measured=measured,
        bound=bound,
        rule=violation.rule if name else "",
        name=name,
    )
