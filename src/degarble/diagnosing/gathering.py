"""Evidence, experiment by experiment: which of them runs is decided by what it would tell for its time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from degarble import api, endpoint
from degarble.checkpoint.interface import Source
from degarble.diagnosing.bundle import Bundle, read_bundle
from degarble.diagnosing.inputs import DiagnosisInputs
from degarble.diagnosis.experiment_plan import Choice, possible, ranked
from degarble.diagnosis.hypothesis import can_explain, experiments, rows_of
from degarble.diagnosis.likelihood import Belief, Observation, beliefs
from degarble.diagnosis.symptom_words import Understood, understand
from degarble.errors import DegarbleError
from degarble.evidence import Evidence
from degarble.finding import Finding
from degarble.probe.connection import Limits
from degarble.report.interface import Report
from degarble.runner import Outcome
from degarble.target import open_target

PROBE_PREFIX = "RUN"
MIN_PROBE_SECONDS = 5.0
SETTLED = 0.9


@dataclass(slots=True)
class Gathered:
    """What is known so far."""

    reports: dict[str, Report] = field(default_factory=dict)
    """Experiment -> what it found, in the order in which they ran."""
    seconds: dict[str, float] = field(default_factory=dict)
    observations: list[Observation] = field(default_factory=list)
    understood: Understood | None = None
    bundle: Bundle | None = None
    not_run: dict[str, str] = field(default_factory=dict)
    """Experiment or input -> why it tells nothing."""

    @property
    def findings(self) -> list[Finding]:
        """Of all experiments."""
        return [finding for report in self.reports.values() for finding in report.findings]

    @property
    def outcomes(self) -> Mapping[str, Outcome]:
        """Rule -> what became of it; one that found something in any experiment found something."""
        found: dict[str, Outcome] = {}
        for report in self.reports.values():
            for result in report.results:
                if found.get(result.rule) is not Outcome.FINDINGS:
                    found[result.rule] = result.outcome
        return found

    def beliefs(self) -> tuple[Belief, ...]:
        """Every hypothesis after what is known."""
        return beliefs(self.findings, self.outcomes, self.observations)

    def next_choices(self) -> tuple[Choice, ...]:
        """Experiments that would still tell something."""
        return ranked(self.beliefs(), (*self.reports, *self.not_run))


def gather(inputs: DiagnosisInputs) -> Gathered:
    """Start from words and from what a guard kept, then run experiments while the budget lasts."""
    inputs.require_any()
    known = Gathered()
    started = time.monotonic()
    if inputs.symptom is not None:
        known.understood = understand(inputs.symptom)
        if known.understood.rows:
            known.observations.append(Observation(what="what was said", rows=known.understood.rows))
    _read_incident(inputs, known)
    runs = _runs(inputs, known)
    while True:
        left = inputs.budget_seconds - (time.monotonic() - started)
        chosen = _next(inputs, known, runs, left)
        if chosen is None:
            break
        _run(chosen, runs[chosen], known)
    for name in runs:
        if name not in known.reports and name not in known.not_run:
            known.not_run[name] = f"the budget of {inputs.budget_seconds:g} s did not reach it"
    return known


def _next(
    inputs: DiagnosisInputs, known: Gathered, runs: Mapping[str, Callable[[], Report]], left: float
) -> str | None:
    """The most telling experiment that is affordable. Given evidence is read even where it settles nothing."""
    open_ones = [name for name in runs if name not in known.reports and name not in known.not_run]
    affordable = possible(known.next_choices(), inputs.available(), left)
    for choice in affordable:
        if choice.name in open_ones and not (choice.name in inputs.joined and _is_settled(known)):
            return choice.name
    if _is_settled(known):
        open_ones = [name for name in open_ones if name not in inputs.joined]
    cheap = [name for name in open_ones if experiments()[name].seconds <= left and name not in inputs.joined]
    return min(cheap, key=lambda name: experiments()[name].seconds, default=None)


def _is_settled(known: Gathered) -> bool:
    """Whether what was found already explains all that was seen: then no model has to run."""
    spoken = [one.name for one in known.beliefs() if one.probability >= SETTLED]
    return bool(spoken) and all(can_explain(spoken, seen.rows) for seen in known.observations)


def _runs(inputs: DiagnosisInputs, known: Gathered) -> dict[str, Callable[[], Report]]:
    """The experiments that can be made by themselves, by name."""
    found: dict[str, Callable[[], Report]] = {}
    available = inputs.available()
    if "target" in available:
        found["check-reference" if inputs.reference else "check"] = lambda: check(inputs)
    if inputs.trace:
        found["trace"] = lambda: api.trace(inputs.trace)
    if known.bundle is not None and known.bundle.trace is not None:
        path = known.bundle.trace
        found["bundle"] = lambda: api.trace([path])
    if inputs.endpoint:
        found["probe"] = lambda: _probe(inputs)
    for name, run in inputs.joined.items():
        if set(experiments()[name].needs) <= available:
            found[name] = partial(run, inputs)
    return found


def _run(name: str, run: Callable[[], Report], known: Gathered) -> None:
    """One experiment; what could not be done is told, and is no evidence."""
    before = time.monotonic()
    try:
        report = run()
    except DegarbleError as error:
        known.not_run[name] = str(error)
        return
    if report.failure is not None:
        known.not_run[name] = report.failure
        return
    known.reports[name] = report
    known.seconds[name] = time.monotonic() - before
    for finding in report.findings:
        rows = rows_of(rule=finding.rule) if finding.rule.startswith(PROBE_PREFIX) else ()
        if rows:
            known.observations.append(Observation(what=f"{finding.rule} {finding.name}", rows=rows))


def _read_incident(inputs: DiagnosisInputs, known: Gathered) -> None:
    if inputs.incident is None:
        return
    known.bundle = read_bundle(inputs.incident)
    rows = rows_of(guard=known.bundle.guard)
    if rows:
        known.observations.append(Observation(what=f"the guard {known.bundle.guard}", rows=rows))
    if known.bundle.trace is None:
        known.not_run["bundle"] = known.bundle.no_trace


def source_of(inputs: DiagnosisInputs) -> Source:
    """The target, opened. Raises TargetError."""
    if inputs.evidence is not None:
        found: Source = inputs.evidence.get("source")
        return found
    return open_target(str(inputs.target))


def check(inputs: DiagnosisInputs) -> Report:
    """The static check, beside the reference where there is one."""
    settings = api.settings_from("content", inputs.engine, None, None, None, None)
    healthy = None if inputs.reference is None else Evidence(open_target(inputs.reference), settings)
    return api.check_source(source_of(inputs), settings, healthy, profile=True)


def _probe(inputs: DiagnosisInputs) -> Report:
    """Ask the endpoint; its version is looked up among the known issues of engines afterwards."""
    report = endpoint.probe(
        str(inputs.endpoint),
        model=inputs.model,
        tokenizer=inputs.target,
        reference=inputs.reference_endpoint,
        api_key=inputs.api_key,
        limits=inputs.limits or Limits(budget_seconds=max(MIN_PROBE_SECONDS, min(60.0, inputs.budget_seconds / 2))),
        seed=inputs.seed,
        redact=inputs.redact,
        transport=inputs.transport,
        reference_transport=inputs.reference_transport,
    )
    return report if report.failure is not None or not report.target.formats else _with_issues(report, inputs)


def _with_issues(report: Report, inputs: DiagnosisInputs) -> Report:
    """ENG703 once more, now that engine and version are known."""
    name, _, version = report.target.formats[0].partition(" ")
    if not version or inputs.engine is not None or "target" not in inputs.available():
        return report
    settings = api.settings_from("header", f"{name}@{version}", None, None, None, None)
    issues = api.check_source(source_of(inputs), settings, None, ["ENG703"])
    return replace(
        report,
        results=(*report.results, *issues.results),
        findings=(*report.findings, *issues.findings),
        causes=(*report.causes, *issues.causes),
    )
