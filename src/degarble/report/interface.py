"""Report: what every writer renders and the library returns. Keys and enums are a contract (DESIGN, schema version 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from degarble.diagnosis import Cause
from degarble.finding import Finding, Severity
from degarble.policy.policy import WaiverState
from degarble.policy.waivers import Waiver
from degarble.runner import Outcome, RuleResult
from degarble.version import __version__

SCHEMA_VERSION = 1


class Status(StrEnum):
    """One word for the whole target."""

    FINDINGS = "findings"
    ERROR = "error"
    PARTIAL = "partial"
    OK = "ok"


FAIL_ON = ("error", "warning", "info", "partial")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What was checked."""

    path: str
    kind: str
    formats: tuple[str, ...] = ()


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """What the page of a rule says of its fault, each part as one line; empty where it says nothing."""

    story: str = ""
    predicts: str = ""
    confirm: str = ""
    repair: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The result of one command."""

    target: Target
    findings: tuple[Finding, ...] = ()
    causes: tuple[Cause, ...] = ()
    results: tuple[RuleResult, ...] = ()
    accepted: tuple[Finding, ...] = ()
    """Findings that a policy accepts; they count nowhere else."""
    waivers: tuple[tuple[Waiver, WaiverState], ...] = ()
    """Every waiver that was given, and whether it was needed."""
    unjudged: Mapping[str, str] = field(default_factory=dict)
    """What was given and could not be judged, with the reason."""
    profile: Mapping[str, object] | None = None
    """The numbers behind the value rules, module by module, where they were asked for."""
    comparison: Mapping[str, object] | None = None
    """What `degarble compare` measured, layer by layer."""
    diagnosis: Mapping[str, object] | None = None
    """What `degarble diagnose` says beside the findings: summary, proofs, what to find out next."""
    failure: str | None = None
    """Why the tool could not do its work at all."""
    version: str = __version__
    """Of the degarble that made it."""
    words: Mapping[str, Words] = field(default_factory=dict)
    """By rule, of a report read back: the words it was saved with. A fresh report takes those of the pages."""

    @property
    def status(self) -> Status:
        """See DESIGN: findings beat a crash only if one of them is an error; unchecked is never clean."""
        if self.failure is not None:
            return Status.ERROR
        worst = {finding.severity for finding in self.findings}
        if self.count(Outcome.CRASHED) and Severity.ERROR not in worst:
            return Status.ERROR
        if worst & {Severity.ERROR, Severity.WARNING}:
            return Status.FINDINGS
        return Status.PARTIAL if self.unjudged else Status.OK

    def count(self, outcome: Outcome) -> int:
        """How many rules ended this way."""
        return sum(result.outcome is outcome for result in self.results)

    @property
    def summary(self) -> dict[str, int]:
        """Findings by severity and rules by outcome."""
        counts = {severity.value: sum(f.severity is severity for f in self.findings) for severity in Severity}
        ran = self.count(Outcome.OK) + self.count(Outcome.FINDINGS)
        return counts | {"ran": ran, "skipped": self.count(Outcome.SKIPPED), "crashed": self.count(Outcome.CRASHED)}

    def exit_code(self, fail_on: str = "error") -> int:
        """0 nothing at or above `fail_on`, 1 findings, 2 the tool could not do its work."""
        if self.status is Status.ERROR:
            return 2
        if fail_on == "partial":
            return int(self.status is not Status.OK)
        limit = Severity(fail_on).rank
        return int(any(finding.severity is not None and finding.severity.rank <= limit for finding in self.findings))
