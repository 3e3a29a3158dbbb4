"""The rules about companions and forms, on mixtures of experts in formats for which there is no golden checkpoint."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.finding import Severity
from degarble.registry import Level, rules
from degarble.target import open_target
from tests.checks.quantization.moe_patients import BUILDERS
from tests.planting import points_at

RULES = ["QNT101", "QNT102", "QNT103", "QNT109", "QNT110", "QNT111", "QNT114", "QNT115", "QNT117", "QNT119", "QNT120"]
FAULTS = [fault for fault in faults() if fault.rule in RULES]
SEEDS = (0, 1)


def known_rules() -> list[str]:
    """Container, config and quantisation: what headers can show."""
    return [rule for rule in rules() if rule.startswith(("CKP", "CFG", "QNT"))]


@cache
def evidence_of(path: Path) -> Evidence:
    """Evidence of a healthy patient, read once."""
    return Evidence(open_target(path), Settings())


@pytest.fixture(scope="session")
def patients(golden: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every patient on disk, by the name of its builder."""
    folder = tmp_path_factory.mktemp("moe")
    return {build.__name__: build(golden, folder / build.__name__) for build in BUILDERS}


@pytest.mark.parametrize("name", [build.__name__ for build in BUILDERS])
def test_healthy_patient_is_silent(name: str, patients: dict[str, Path]) -> None:
    report = check_source(open_target(patients[name]), chosen=known_rules())
    assert [f.message for f in report.findings if f.severity is not Severity.INFO] == []
    assert report.unjudged == {}


@pytest.mark.parametrize("name", [build.__name__ for build in BUILDERS])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_cause(fault: Fault, name: str, patients: dict[str, Path]) -> None:
    for seed in SEEDS:
        workspace = Workspace(open_target(patients[name]))
        patient = Patient(evidence=evidence_of(patients[name]), workspace=workspace, rng=random.Random(seed))
        try:
            place = fault.function(patient)
        except NotApplicable as reason:
            pytest.skip(str(reason))
        report = check_source(workspace.source(), Settings(level=Level.HEADER))
        causes = [cause.finding for cause in report.causes]
        assert [finding.rule for finding in causes] == [fault.rule], [finding.message for finding in causes]
        assert points_at(causes[0], place)


def test_every_rule_about_experts_was_planted(patients: dict[str, Path]) -> None:
    """The patients exist so that these faults apply somewhere."""
    names = {"experts-unevenly-covered", "mtp-form-differs", "kv-scales-incomplete", "uncalibrated-activation-scale"}
    applied = set()
    for fault in (fault for fault in FAULTS if fault.name in names):
        for path in patients.values():
            workspace = Workspace(open_target(path))
            try:
                fault.function(Patient(evidence=evidence_of(path), workspace=workspace, rng=random.Random(0)))
            except NotApplicable:
                continue
            applied.add(fault.name)
    assert applied == names
