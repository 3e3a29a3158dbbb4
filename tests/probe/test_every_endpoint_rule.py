"""Every endpoint fault on the healthy stand-in: its rule is the first cause, and all else is its symptom.

This file names no rule. A new fault is tested by being there.
"""

from __future__ import annotations

import pytest

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint
from degarble.endpoint_faults.interface import EndpointFault, endpoint_faults
from degarble.registry import rules_on
from tests.probe.endpoints import report_on


def test_healthy_is_silent_and_everything_is_judged() -> None:
    report = report_on(FakeEndpoint(), reference=FakeEndpoint())
    assert report.failure is None and not report.unjudged
    assert {result.rule: result.reason for result in report.results if result.outcome != "ok"} == {}
    assert {result.rule for result in report.results} == set(rules_on("probe_"))


@pytest.mark.parametrize("fault", endpoint_faults(), ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_cause(fault: EndpointFault) -> None:
    report = report_on(fault.planted(), reference=FakeEndpoint() if fault.needs_reference else None)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    assert report.causes, f"nothing found: {[(r.rule, r.outcome, r.reason) for r in report.results]}"
    causes = [(cause.finding.rule, cause.finding.message) for cause in report.causes]
    assert {rule for rule, _ in causes} == {fault.rule}, causes
    assert report.target.formats == ("vllm 0.32.0",)


def test_every_endpoint_rule_has_a_fault() -> None:
    assert {fault.rule for fault in endpoint_faults()} == set(rules_on("probe_"))
