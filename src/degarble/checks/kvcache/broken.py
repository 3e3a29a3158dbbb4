"""From what a replay found to findings of one rule, and which rules explain which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from degarble.errors import EvidenceMissing
from degarble.finding import Confidence, Finding, Location, Severity

if TYPE_CHECKING:
    from degarble.trace.replay import Verdict
    from degarble.trace.violation import Violation

CAUSATION = (
    *("KVC623", "KVC605", "KVC603", "KVC617", "KVC624", "KVC622", "KVC602", "KVC604", "KVC616", "KVC625", "KVC626"),
    *("KVC608", "KVC615", "KVC607", "KVC621", "KVC618", "KVC627", "KVC606"),
)
"""What breaks first in a trace, and what then breaks with it: a rule may be explained by those before it."""
MAX_INTEGER = 1 << 53
"""Numbers beyond it are left out of a location: JSON readers would round them."""


def before(rule: str) -> tuple[str, ...]:
    """The rules that may explain this one at the same request or block, if they broke earlier."""
    return CAUSATION[: CAUSATION.index(rule)]


@runtime_checkable
class Partial(Protocol):
    """A verdict from a format that shows a part of a trace only (`degarble.trace_readers`)."""

    judged: frozenset[str]
    why: str


def broken(trace: Verdict, rule: str, *needed: str) -> Iterator[Finding]:
    """Findings of a rule. Raises EvidenceMissing if the trace has none of the events that it is judged by."""
    found = [violation for violation in trace.violations if violation.rule == rule]
    if not found and isinstance(trace, Partial) and rule not in trace.judged:
        raise EvidenceMissing(trace.why)
    if not found and needed and not trace.kinds.intersection(needed):
        raise EvidenceMissing(f"the trace has no {' or '.join(needed)} events")
    further = trace.further.get(rule, 0)
    for number, violation in enumerate(found):
        yield _finding(violation, further if number == 0 else 0)


def _finding(violation: Violation, further: int) -> Finding:
    parts = [violation.message]
    if violation.life:
        parts.append(f"block {violation.block}: {', '.join(violation.life)}")
    if violation.boundary:
        parts.append(violation.boundary)
    if further:
        parts.append(f"{further} more of this rule follow")
    return Finding(
        location=Location(
            file=violation.file or None,
            key=violation.key,
            layer=violation.layer,
            line=_integer(violation.line),
            request=violation.request,
            block=_integer(violation.block),
            slot=_integer(violation.slot),
            position=_integer(violation.position),
        ),
        message="; ".join(parts),
        severity=Severity.INFO if violation.is_info else None,
        confidence=Confidence.LIKELY if violation.is_likely else None,
        measured=dict(violation.measured),
        bound=dict(violation.bound),
    )


def _integer(number: int | None) -> int | None:
    return number if number is not None and abs(number) < MAX_INTEGER else None
