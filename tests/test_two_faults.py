"""Two faults that have nothing to do with each other: both are causes, though one's rule could explain the other's."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from degarble.api import check_source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Settings
from degarble.faults.interface import Patient, faults
from degarble.registry import Level, rules
from tests.family_patients import family_patients
from tests.planting import healthy_evidence, patient_source

FAULTS = {fault.name: fault for fault in faults()}
PAIRS = [
    ("eos-id-invalid", "token-decoded-twice", "qwen3"),
    ("eos-id-invalid", "control-token-not-special", "llama-2"),
    ("eos-id-invalid", "token-id-out-of-range", "llama-2"),
    ("eos-id-invalid", "config-key-missing", "llama-2"),
    ("role-id-disagrees", "added-token-without-row", "llama-2"),
    ("control-token-not-special", "token-id-disagrees", "llama-2"),
]


@pytest.mark.parametrize(("symptomatic", "other", "name"), PAIRS)
def test_both_are_causes(symptomatic: str, other: str, name: str) -> None:
    """The rule of the first is a `symptom_of` the second's, but the two stand at different tokens or keys."""
    one, two = FAULTS[symptomatic], FAULTS[other]
    assert any(two.rule in check.symptom_of for check in rules()[one.rule].checks)
    path = family_patients() / name
    workspace = Workspace(patient_source(path))
    for fault in (one, two):
        fault.function(Patient(evidence=healthy_evidence(path), workspace=workspace, rng=random.Random(1)))
    report = check_source(workspace.source(), replace(Settings(), level=Level.HEADER))
    assert {one.rule, two.rule} <= {cause.finding.rule for cause in report.causes}
