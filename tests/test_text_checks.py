"""Every fault of a TOK or TPL rule, in a healthy checkpoint of every family it applies to, in every form of storage.

This file names no check. A new check with its fault is tested by being there.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from _pytest.mark.structures import ParameterSet

from degarble.evidence import Settings
from degarble.faults.interface import Fault, faults
from degarble.finding import Severity
from degarble.registry import Level
from tests.family_patients import NAMES, family_patients
from tests.planting import assert_first_cause, healthy_report

TEXT_FAULTS = [fault for fault in faults() if fault.rule.startswith(("TOK", "TPL"))]
SMALL = ("llama-2", "llama-2-sentencepiece", "llama-2-gguf")
HEADER = replace(Settings(), level=Level.HEADER)


@pytest.mark.parametrize("name", NAMES)
def test_healthy_is_silent(name: str) -> None:
    """No error and no warning of any rule; nothing that was given stays unjudged."""
    report = healthy_report(family_patients() / name, HEADER)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    loud = [finding for finding in report.findings if finding.severity is not Severity.INFO]
    assert not loud, [f"{f.rule} at {f.location.name()}: {f.message}" for f in loud]


def cases() -> Iterator[ParameterSet]:
    """Every fault in a small patient and in two others, by turns; in the rest by `make test-slow`."""
    large = [name for name in NAMES if name not in SMALL]
    for fault in TEXT_FAULTS:
        turn = zlib.crc32(fault.name.encode())
        quick = (SMALL[0], SMALL[1 + turn % 2], large[turn % len(large)])
        for name in NAMES:
            marks = () if name in quick else (pytest.mark.slow,)
            yield pytest.param(fault, name, id=f"{fault.rule}-{fault.name}-{name}", marks=marks)


@pytest.mark.parametrize(("fault", "name"), list(cases()))
def test_fault_is_the_first_cause(fault: Fault, name: str) -> None:
    """See planting.assert_first_cause."""
    assert_first_cause(fault, family_patients() / name)
