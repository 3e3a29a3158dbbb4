"""Every fault, in every golden checkpoint it applies to: its rule is the first cause, at that place, and alone.

This file names no check. A new check with its fault is tested by being there.
"""

from __future__ import annotations

import json
import random
import re
import zlib
from functools import cache
from pathlib import Path

import pytest

from degarble.api import check_source
from degarble.checkpoint.interface import Source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.finding import Finding, Location, Severity
from degarble.registry import RULE_ID, SECTIONS, rules
from degarble.report.interface import Report
from degarble.target import open_target
from tests.conftest import unpacked_golden

PATIENTS = sorted(path.name for path in unpacked_golden().iterdir() if path.is_dir())


@cache
def patient_source(name: str) -> Source:
    """A golden checkpoint, opened once."""
    return open_target(unpacked_golden() / name)


@cache
def healthy_evidence(name: str) -> Evidence:
    """Evidence of the healthy state, read once."""
    return Evidence(patient_source(name), Settings())


@cache
def healthy_report(name: str) -> Report:
    """What the healthy copy gives: the baseline that a fault adds to."""
    return check_source(patient_source(name))


def plant(fault: Fault, name: str, seed: int) -> tuple[Report, Location]:
    """Plant one fault in process and check the result. Skips where it does not apply."""
    workspace = Workspace(patient_source(name))
    patient = Patient(evidence=healthy_evidence(name), workspace=workspace, rng=random.Random(seed))
    try:
        place = fault.function(patient)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    reference = healthy_evidence(name) if fault.needs_reference else None
    return check_source(workspace.source(), Settings(), reference), place


@pytest.mark.parametrize("name", PATIENTS)
@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_fault_is_the_first_cause(fault: Fault, name: str) -> None:
    """The rule of the fault is the first cause, at the place; all else that is new is its symptom."""
    report, place = plant(fault, name, seed=zlib.crc32(f"{fault.name} {name}".encode()))
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.reason and "crash" in r.outcome]
    known = {finding.fingerprint for finding in healthy_report(name).findings}
    new = [cause for cause in report.causes if cause.finding.fingerprint not in known]
    assert new, f"{fault.rule} not found; report: {[f.rule + ': ' + f.message for f in report.findings]}"
    first = new[0].finding
    assert first.rule == fault.rule, f"first cause {first.rule}: {first.message}"
    assert points_at(first, place), f"points at {[p.as_dict() for p in first.all_places[:3]]}, not {place.as_dict()}"
    strangers = [c.finding for c in new[1:]]
    assert not strangers, [f"{f.rule} at {f.location.name()}: {f.message}" for f in strangers]


def points_at(finding: Finding, place: Location) -> bool:
    """Every key that the fault names is met by one of the finding's places."""
    wanted = place.as_dict()
    return any(all(found.as_dict().get(k) == v for k, v in wanted.items()) for found in finding.all_places)


@pytest.mark.parametrize("name", PATIENTS)
def test_healthy_is_silent(name: str) -> None:
    """No error on a healthy checkpoint, except those its manifest expects."""
    entries = json.loads((unpacked_golden() / "MANIFEST.json").read_text())["entries"]
    expected = set(next(entry for entry in entries if entry["dir"] == name)["expect"])
    report = healthy_report(name)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    causes = [c.finding for c in report.causes if c.finding.severity in (Severity.ERROR, Severity.WARNING)]
    if expected:
        assert causes and causes[0].rule in expected
    else:
        errors = [f for f in report.findings if f.severity is Severity.ERROR]
        assert not errors, [f"{f.rule} at {f.location.name()}: {f.message}" for f in errors]


def test_every_rule_has_a_fault() -> None:
    """A check without its opposite proves nothing."""
    planted = {fault.rule for fault in faults()}
    assert set(rules()) - planted == set()


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_house_rules(rule) -> None:  # type: ignore[no-untyped-def]
    """Id, name, headings and edges."""
    assert RULE_ID.match(rule.id)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.name)
    headings = re.findall(r"^## (.+)$", rule.page, flags=re.MULTILINE)
    assert headings == list(SECTIONS.values()), f"{rule.id}: {headings}"
    assert all(rule.section(key) for key in SECTIONS)
    assert not rule.summary.startswith("#") and rule.summary.endswith(".")
    for other in rule.requires | rule.symptom_of:
        assert other in rules(), f"{rule.id} names {other}, which does not exist"
        assert other != rule.id


def test_edges_have_no_cycle() -> None:
    """`symptom_of` and `requires` are directed acyclic graphs."""
    for edge in ("symptom_of", "requires"):
        done: set[str] = set()

        def visit(rule: str, path: tuple[str, ...], edge: str = edge, done: set[str] = done) -> None:
            assert rule not in path, f"{edge}: {' -> '.join((*path, rule))}"
            if rule not in done:
                for other in getattr(rules()[rule], edge):
                    visit(other, (*path, rule))
                done.add(rule)

        for rule in rules():
            visit(rule, ())

