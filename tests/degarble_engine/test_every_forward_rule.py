"""Every fault of a rule that needs a forward pass, planted in golden checkpoints and found by `compare`."""

from __future__ import annotations

import random
import zlib

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.finding import Severity
from degarble.registry import rules_on
from degarble.report.interface import Report, Status
from degarble.target import open_target
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.walked_model import WalkedModel
from tests.conftest import unpacked_golden
from tests.planting import points_at

FAULTS = [fault for fault in faults() if fault.needs_forward_pass]
PATIENTS = ("base-bf16", "own-untied-bf16", "llm-compressor-w4a16-gptq-asym-g128", "llm-compressor-fp8-block")
TEXTS = ("A short text about nothing in particular, long enough for sixteen tokens or more.", "1 + 1 = 2")


def compared(work: Workspace, reference: str) -> Report:
    candidate = WalkedModel(Evidence(work.source(), Settings()))
    report: Report = compare_models(
        candidate, WalkedModel.open(str(unpacked_golden() / reference)), Question(texts=TEXTS)
    )
    return report


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_the_fault_is_found(fault: Fault, name: str) -> None:
    """Against the same checkpoint without it: first cause, at the place, or the note that it is."""
    source = open_target(unpacked_golden() / name)
    work = Workspace(source)
    rng = random.Random(zlib.crc32(f"{fault.name} {name}".encode()))
    try:
        place = fault.function(Patient(evidence=Evidence(source, Settings()), workspace=work, rng=rng))
    except (NotApplicable, ValueError) as reason:
        pytest.skip(str(reason))
    report = compared(work, name)
    assert report.summary["crashed"] == 0, [result.reason for result in report.results]
    found = [finding for finding in report.findings if finding.rule == fault.rule]
    assert found, [f"{one.rule} {one.message}" for one in report.findings]
    assert any(points_at(one, place) for one in found), [one.location for one in found]
    if rules_on("forward_pass")[fault.rule].severity is Severity.ERROR and fault.rule != "NUM306":
        first = report.causes[0].finding
        assert first.rule in ("DIV902", "DIV903") and points_at(first, place), first.message


@pytest.mark.parametrize("name", PATIENTS)
def test_a_copy_of_the_reference_is_ok(name: str) -> None:
    report = compared(Workspace(open_target(unpacked_golden() / name)), name)
    assert report.status is Status.OK and not report.findings
    assert report.comparison is not None and report.comparison["kl_divergence"] == 0.0
