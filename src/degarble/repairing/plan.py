"""Planning repairs on a view of a checkpoint: cause by cause, each proven by checking again.

Causes that headers and config show are repaired before values are looked at, since a wrong label makes right values
look wrong. Within a round all repairs are made and judged together; only if something is still found, or is new, are
they made one at a time, and those that do not help are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from degarble.api import check_evidence
from degarble.checkpoint.interface import Source
from degarble.checkpoint.spill import SpillFile
from degarble.checkpoint.workspace import Ropes, Workspace
from degarble.errors import DegarbleError
from degarble.evidence import Evidence, Settings
from degarble.finding import Finding
from degarble.fixes.interface import CannotRepair, Repair, repairs
from degarble.fixes.job import Job
from degarble.fixes.manifests import refresh_manifests
from degarble.fixes.reference import Reference
from degarble.policy.policy import NO_POLICY, Policy
from degarble.registry import Level
from degarble.repairing.step import Refused, Step
from degarble.repairing.verdict import Place, objection, places_of
from degarble.report.interface import Report

log = logging.getLogger(__name__)

MAX_ROUNDS = 12
COPY = "restore-from-reference"
"""Tried where a finding's own repair has no safe answer."""

Cause = tuple[str, frozenset[Place]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What would be done, and what a check says before and after."""

    before: Report
    after: Report
    steps: tuple[Step, ...]
    refused: tuple[Refused, ...]
    workspace: Workspace


class Planner:
    """Repairs a view until nothing more can be repaired."""

    def __init__(
        self,
        source: Source,
        settings: Settings,
        *,
        reference: Source | None = None,
        chosen: Sequence[str] | None = None,
        policy: Policy = NO_POLICY,
        unsafe: bool = False,
        spill: SpillFile | None = None,
    ) -> None:
        self.workspace = Workspace(source, spill)
        self._settings = settings
        self._healthy = Evidence(reference, settings) if reference is not None else None
        self._chosen = chosen
        self._policy = policy
        self.unsafe = unsafe
        self._evidence: Evidence | None = None
        self._steps: list[Step] = []
        self._refused: dict[Cause, Refused] = {}
        self._dropped: dict[tuple[Cause, str], str] = {}
        """(cause, repair that was tried) -> why it did not help."""

    def plan(self) -> Plan:
        """Check, repair, check again."""
        before = after = self._check()
        if self._settings.level is not Level.HEADER:
            self._rounds(self._check(Level.HEADER), Level.HEADER)
            after = self._check() if self._steps else before
        after = self._rounds(after, self._settings.level)
        return self._planned(before, after)

    def replay(self, findings: Sequence[tuple[str, Finding]]) -> Plan:
        """Make the named repairs of these findings, in this order, without looking for others."""
        before = self._check()
        for name, finding in findings:
            repair = repairs().get(name)
            step = self._make(repair, finding, judged=self.unsafe) if repair is not None else None
            if step is None:
                known = self._refused.get(_cause(finding))
                raise CannotRepair(known.reason if known is not None else f"no repair is called {name!r}")
            self._steps.append(step)
        return self._planned(before, self._check())

    def recheck(self, source: Source) -> Report:
        """The same check of what was written."""
        return check_evidence(Evidence(source, self._settings, self._healthy), self._chosen, policy=self._policy)

    def _planned(self, before: Report, after: Report) -> Plan:
        left = [cause.finding for cause in after.causes]
        known = self._refused
        refused = tuple(replace(known[_cause(one)], finding=one) for one in left if _cause(one) in known)
        return Plan(before=before, after=after, steps=tuple(self._steps), refused=refused, workspace=self.workspace)

    def _rounds(self, report: Report, level: Level) -> Report:
        for _ in range(MAX_ROUNDS):
            changed = self._round(report, level)
            if changed is None:
                break
            report = changed
        return report

    def _round(self, before: Report, level: Level) -> Report | None:
        """All repairs at once if that goes well, else one at a time. None: nothing was left to try."""
        state = self.workspace.snapshot()
        steps = [step for cause in before.causes if (step := self._attempt(cause.finding)) is not None]
        if not steps:
            return None
        after = self._check(level)
        reason = objection(before, after, steps)
        if reason is None:
            self._accept(steps)
            return after
        self._restore(state)
        if len(steps) == 1:
            self._reject(steps[0], reason)
            return before
        return self._one_by_one([step.finding for step in steps], before, level)

    def _one_by_one(self, findings: Sequence[Finding], before: Report, level: Level) -> Report:
        for finding in findings:
            state = self.workspace.snapshot()
            step = self._attempt(finding)
            if step is None:
                continue
            after = self._check(level)
            reason = objection(before, after, [step])
            if reason is None:
                self._accept([step])
                before = after
            else:
                self._restore(state)
                self._reject(step, reason)
        return before

    def _accept(self, steps: Sequence[Step]) -> None:
        """What was refused may be possible now."""
        self._steps += steps
        self._refused.clear()

    def _reject(self, step: Step, reason: str) -> None:
        """Not tried again; the next round goes on with the next repair that could help."""
        self._dropped[_cause(step.finding), step.repair] = f"{step.repair} was tried and dropped: {reason}"

    def _attempt(self, finding: Finding) -> Step | None:
        """The finding's own repair if it is safe, else a copy from the reference, else a judgement if that is allowed."""
        refusals: list[Refused] = []
        for repair, judged in self._candidates(finding):
            dropped = self._dropped.get((_cause(finding), repair.id))
            if dropped is not None:
                refusals.append(Refused(finding=finding, reason=dropped))
                continue
            step = self._make(repair, finding, judged=judged)
            if step is not None:
                return step
            refusals.append(self._refused[_cause(finding)])
        if refusals:
            fetch = tuple(dict.fromkeys(item for one in refusals for item in one.fetch))
            text = "; ".join(dict.fromkeys(one.reason for one in refusals))
            self._refused[_cause(finding)] = Refused(
                finding=finding, reason=text, fetch=fetch, needs_unsafe=any(one.needs_unsafe for one in refusals)
            )
        return None

    def _candidates(self, finding: Finding) -> Iterator[tuple[Repair, bool]]:
        copy = repairs()[COPY]
        own = repairs().get(finding.fix.id, copy) if finding.fix is not None else copy
        yield own, False
        if own.function is not copy.function and self._healthy is not None:
            yield copy, False
        if self.unsafe:
            yield own, True

    def _make(self, repair: Repair, finding: Finding, *, judged: bool) -> Step | None:
        """Run one repair. What it did is taken back if it may not stand."""
        state = self.workspace.snapshot()
        reference = Reference(self._healthy) if self._healthy is not None else None
        job = Job(finding, self._current(), self.workspace, reference)
        refusal: Refused | None = None
        try:
            repair.function(job)
            refresh_manifests(job)
            if not job.edits:
                refusal = Refused(finding=finding, reason=f"{repair.id} finds nothing to change")
            elif job.judgement is not None and not judged:
                refusal = Refused(finding=finding, reason=f"needs --unsafe: {job.judgement}", needs_unsafe=True)
        except CannotRepair as reason:
            refusal = Refused(finding=finding, reason=reason.reason, fetch=reason.fetch)
        except DegarbleError as error:
            refusal = Refused(finding=finding, reason=str(error))
        except Exception as error:  # our bug must not cost the user the other repairs
            log.debug("%s failed", repair.id, exc_info=True)
            text = f"{repair.id} failed, which is a bug of ours: {type(error).__name__}: {error}"
            refusal = Refused(finding=finding, reason=text)
        if refusal is not None:
            self.workspace.restore(state)
            self._refused[_cause(finding)] = refusal
            return None
        self._evidence = None
        return Step(repair=repair.id, finding=finding, edits=tuple(job.edits), judgement=job.judgement)

    def _restore(self, state: Ropes) -> None:
        self.workspace.restore(state)
        self._evidence = None

    def _current(self) -> Evidence:
        """Evidence of the view as it is, kept while nothing changes."""
        if self._evidence is None:
            self._evidence = Evidence(self.workspace.source(), self._settings, self._healthy)
        return self._evidence

    def _check(self, level: Level | None = None) -> Report:
        if level is None or level is self._settings.level:
            return check_evidence(self._current(), self._chosen, policy=self._policy)
        evidence = Evidence(self.workspace.source(), replace(self._settings, level=level), self._healthy)
        return check_evidence(evidence, self._chosen, policy=self._policy)


def _cause(finding: Finding) -> Cause:
    return finding.rule, places_of(finding)
