"""Every trace fault, in every healthy trace it applies to: its rule is the first cause, at that event and place.

This file names no rule. A new fault is tested by being there.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from degarble.api import trace
from degarble.finding import Severity
from degarble.registry import rules_on
from degarble.trace_faults.interface import NotApplicable, TraceFault, trace_faults
from tests.trace.traces import FOLDER, HEALTHY, healthy, verdict_of, write


@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_is_silent(name: str, tmp_path: Path) -> None:
    verdict = verdict_of(tmp_path / "trace.jsonl", healthy(name))
    assert not verdict.violations and not verdict.unknown
    assert verdict.num_events == len(healthy(name))


@pytest.mark.parametrize("fault", trace_faults(), ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_violation(fault: TraceFault, tmp_path: Path) -> None:
    planted = 0
    for name in HEALTHY:
        for seed in range(3):
            try:
                events, place = fault.plant(healthy(name), zlib.crc32(f"{fault.name} {name} {seed}".encode()))
            except NotApplicable:
                continue
            planted += 1
            verdict = verdict_of(tmp_path / "trace.jsonl", events)
            assert verdict.violations, f"{name}, seed {seed}: nothing found, planted at {place.as_dict()}"
            first = min(verdict.violations, key=lambda violation: violation.line)
            assert first.rule == fault.rule, f"{name}, seed {seed}: {first}, planted at {place.as_dict()}"
            for key, value in place.as_dict().items():
                assert getattr(first, key) == value, f"{name}, seed {seed}: {key} {first}, planted {place.as_dict()}"
    assert planted >= 3, f"{fault.name} applies to {planted} traces only"


@pytest.mark.parametrize("fault", trace_faults(), ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_cause_of_the_report(fault: TraceFault, tmp_path: Path) -> None:
    for name in HEALTHY:
        try:
            events, place = fault.plant(healthy(name), 5)
        except NotApplicable:
            continue
        report = trace([write(tmp_path / "trace.jsonl", events)])
        assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
        if report.findings[0].severity is Severity.INFO:
            first = report.findings[0]
        else:
            first = report.causes[0].finding
            strangers = [c.finding for c in report.causes if (c.finding.location.line or 0) < (place.line or 0)]
            assert not strangers
        assert (first.rule, first.location.line) == (fault.rule, place.line), first.message
        return
    pytest.fail("applies to no trace")


def test_every_trace_rule_has_a_fault() -> None:
    assert {fault.rule for fault in trace_faults()} == set(rules_on("trace"))


@pytest.mark.parametrize("entry", json.loads((FOLDER / "expected.json").read_text()), ids=lambda entry: entry["file"])
def test_published_examples(entry: dict[str, object]) -> None:
    """The examples of the contract: rule, line, request and block of the first cause."""
    report = trace([FOLDER / str(entry["file"])])
    first = report.causes[0].finding
    rules = entry["rules"]
    assert isinstance(rules, list) and first.rule in rules
    for key in ("line", "request", "block"):
        if key in entry:
            assert getattr(first.location, key) == entry[key]
