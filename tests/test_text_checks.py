"""Every fault of a TOK or TPL rule, in a healthy checkpoint of every family it applies to, in every form of storage.

This file names no check. A new check with its fault is tested by being there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from degarble.evidence import Settings
from degarble.faults.interface import Fault, faults
from degarble.finding import Severity
from degarble.registry import Level
from tests.family_patients import NAMES, family_patients
from tests.planting import assert_first_cause, healthy_report

TEXT_FAULTS = [fault for fault in faults() if fault.rule.startswith(("TOK", "TPL"))]
HEADER = replace(Settings(), level=Level.HEADER)


@pytest.mark.parametrize("name", NAMES)
def test_healthy_is_silent(name: str) -> None:
    """No error and no warning of any rule; nothing that was given stays unjudged."""
    report = healthy_report(family_patients() / name, HEADER)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    loud = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    assert not loud, [f"{f.rule} at {f.location.name()}: {f.message}" for f in loud]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("fault", TEXT_FAULTS, ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_cause(fault: Fault, name: str) -> None:
    """See planting.assert_first_cause."""
    assert_first_cause(fault, family_patients() / name)
