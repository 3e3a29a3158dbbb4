"""Every fault of a KV rule, planted in a healthy declaration: its rule is the first cause, at that place, and alone.

The counterpart of tests/test_every_check.py for rules whose evidence no checkpoint has.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from degarble.checkpoint.folder import LocalFile
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.evidence.cache_declaration import KV_DECLARATION
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.kv import declaration_rules, lint, lint_source
from degarble.registry import rules_on
from tests.planting import points_at

HEALTHY = Path(__file__).parents[1] / "cases" / "kv" / "healthy.json"
FAULTS = [fault for fault in faults() if fault.rule in rules_on("cache_")]


def test_healthy_is_silent_and_everything_is_judged() -> None:
    report = lint(HEALTHY)
    assert report.findings == () and report.failure is None and not report.unjudged
    assert {result.rule for result in report.results if result.outcome == "ok"} >= {
        "KVC601", "KVC609", "KVC611", "KVC612", "KVC613", "KVC614", "KVC619", "KVC620", "KVC624", "KVC628", "KVC629",
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault_is_the_only_cause(fault: Fault, seed: int) -> None:
    source = LocalFile(HEALTHY, KV_DECLARATION)
    workspace = Workspace(source)
    place = fault.function(Patient(evidence=Evidence(source, Settings()), workspace=workspace, rng=random.Random(seed)))
    report = lint_source(workspace.source())
    assert report.summary["crashed"] == 0 and report.failure is None, report
    assert [cause.finding.rule for cause in report.causes if cause.finding.severity != "info"] in ([fault.rule], [])
    assert [finding.rule for finding in report.findings] == [fault.rule]
    assert points_at(report.findings[0], place), report.findings[0].location


def test_every_kv_rule_has_a_fault_and_none_fits_a_checkpoint() -> None:
    assert {fault.rule for fault in FAULTS} == {rule.id for rule in declaration_rules()}
    checkpoint = LocalFile(HEALTHY, "hf-folder")
    for fault in FAULTS:
        patient = Patient(
            evidence=Evidence(checkpoint, Settings()), workspace=Workspace(checkpoint), rng=random.Random(0)
        )
        with pytest.raises(NotApplicable, match="no KV-cache declaration"):
            fault.function(patient)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_declaration_without_the_section_cannot_have_the_fault(fault: Fault, tmp_path: Path) -> None:
    path = tmp_path / "small.json"
    path.write_text('{"num_kv_heads": 4}')
    source = LocalFile(path, KV_DECLARATION)
    patient = Patient(evidence=Evidence(source, Settings()), workspace=Workspace(source), rng=random.Random(0))
    with pytest.raises(NotApplicable):
        fault.function(patient)
