"""What the generic test does with one fault and one healthy checkpoint, shared with the real tier."""

from __future__ import annotations

import os
import random
import zlib
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from degarble.api import check_source
from degarble.checkpoint.interface import Source
from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient
from degarble.finding import Finding, Location
from degarble.registry import Level, rules, rules_on
from degarble.report.interface import Report
from degarble.target import open_target


@cache
def patient_source(path: Path) -> Source:
    """A healthy checkpoint, opened once."""
    return open_target(path)


@cache
def healthy_evidence(path: Path) -> Evidence:
    """Evidence of the healthy state, read once."""
    return Evidence(patient_source(path), Settings())


@cache
def healthy_report(path: Path, settings: Settings | None = None) -> Report:
    """What the healthy copy gives: the baseline that a fault adds to."""
    return check_source(patient_source(path), settings)


def settings_of(fault: Fault) -> Settings:
    """Header faults are checked at header level, which is twenty times faster; `make test-slow` sets
    DEGARBLE_ALL_LEVELS and checks them with all content rules as well.
    """
    needs_header = all(check.level is Level.HEADER for check in rules()[fault.rule].checks)
    if needs_header and not os.environ.get("DEGARBLE_ALL_LEVELS"):
        return replace(fault.settings, level=Level.HEADER)
    return fault.settings


@cache
def rules_of(family: str) -> list[str] | None:
    """Faults in codes and their metadata leave text as it is, and rules of text take four fifths of a header check."""
    if family not in ("QNT", "WGT", "NUM") or os.environ.get("DEGARBLE_ALL_LEVELS"):
        return None
    return [rule for rule in rules_on() if not rule.startswith(("TOK", "TPL"))]


def plant(fault: Fault, path: Path) -> tuple[Report, Location]:
    """Plant one fault in process and check the result. Skips where it does not apply."""
    workspace = Workspace(patient_source(path))
    seed = zlib.crc32(f"{fault.name} {path.name}".encode())
    patient = Patient(evidence=healthy_evidence(path), workspace=workspace, rng=random.Random(seed))
    try:
        place = fault.function(patient)
    except NotApplicable as reason:
        pytest.skip(str(reason))
    reference = healthy_evidence(path) if fault.needs_reference else None
    return check_source(workspace.source(), settings_of(fault), reference, rules_of(fault.rule[:3])), place


def assert_first_cause(fault: Fault, path: Path) -> None:
    """The rule of the fault is the first cause, at the place; all else that is new is its symptom."""
    report, place = plant(fault, path)
    assert report.summary["crashed"] == 0, [r.reason for r in report.results if r.outcome == "crashed"]
    if fault.rule.startswith("ENG") and any(
        c.finding.rule == fault.rule for c in healthy_report(path, settings_of(fault)).causes
    ):
        pytest.skip("the healthy checkpoint is beyond that limit already")
    known = {finding.fingerprint for finding in healthy_report(path, settings_of(fault)).findings}
    new = [cause for cause in report.causes if cause.finding.fingerprint not in known]
    assert new, f"{fault.rule} not found; report: {[f.rule + ': ' + f.message for f in report.findings]}"
    first = new[0].finding
    assert first.rule == fault.rule, f"first cause {first.rule}: {first.message}"
    assert points_at(first, place), f"points at {[p.as_dict() for p in first.all_places[:3]]}, not {place.as_dict()}"
    strangers = [cause.finding for cause in new[1:] if cause.finding.rule != fault.rule]
    assert not strangers, [f"{f.rule} at {f.location.name()}: {f.message}" for f in strangers]


def points_at(finding: Finding, place: Location) -> bool:
    """Every key that the fault names is met by one of the finding's places."""
    wanted = place.as_dict()
    return any(all(found.as_dict().get(k) == v for k, v in wanted.items()) for found in finding.all_places)
