"""Which findings count, and how much: what a team decided, applied to one finding at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum

import msgspec

from degarble.finding import Acceptance, Finding, Severity
from degarble.policy.waivers import Waiver


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """Measured numbers that a team accepts, ends included."""

    min: float | None = None
    max: float | None = None

    def __contains__(self, value: object) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return (self.min is None or value >= self.min) and (self.max is None or value <= self.max)


class WaiverState(StrEnum):
    """What became of a waiver in one run."""

    USED = "used"
    UNUSED = "unused"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Everything that was decided. The empty policy changes nothing."""

    severities: Mapping[str, Severity] = field(default_factory=dict)
    """Rule -> the severity of all its findings."""
    accepts: Mapping[str, Mapping[str, Range]] = field(default_factory=dict)
    """Rule -> measured number -> values that do not count. All that are named must be in range."""
    waivers: tuple[Waiver, ...] = ()
    baseline: frozenset[str] = frozenset()
    today: date | None = None
    """The day on which waivers are judged; None: the current one."""

    def judged(self, finding: Finding) -> Finding:
        """The finding with the severity that was decided, and with the reason why it does not count, if there is one."""
        severity = self.severities.get(finding.rule, finding.severity)
        return replace(finding, severity=severity, accepted=self._acceptance(finding))

    def _acceptance(self, finding: Finding) -> Acceptance | None:
        for waiver in self.waivers:
            if waiver.covers(finding) and not waiver.is_expired(self._day()):
                return Acceptance(kind="waiver", reason=waiver.reason)
        if self.baseline and finding.fingerprint in self.baseline:
            return Acceptance(kind="baseline", reason="known when the baseline was written")
        ranges = self.accepts.get(finding.rule)
        if ranges and all(finding.measured.get(name) in accepted for name, accepted in ranges.items()):
            return Acceptance(kind="accepted number", reason=", ".join(f"{n} {finding.measured[n]}" for n in ranges))
        return None

    def waiver_states(self, accepted: tuple[Finding, ...]) -> tuple[tuple[Waiver, WaiverState], ...]:
        """Each waiver, and whether it was needed. `accepted`: the findings that do not count."""
        return tuple((waiver, self._state(waiver, accepted)) for waiver in self.waivers)

    def _state(self, waiver: Waiver, accepted: tuple[Finding, ...]) -> WaiverState:
        if waiver.is_expired(self._day()):
            return WaiverState.EXPIRED
        singles = (replace(one, location=place) for one in accepted for place in one.all_places)
        return WaiverState.USED if any(map(waiver.covers, singles)) else WaiverState.UNUSED

    def _day(self) -> date:
        return self.today or date.today()


NO_POLICY = Policy()
