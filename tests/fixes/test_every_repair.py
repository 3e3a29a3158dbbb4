"""Every fault, repaired: with the healthy copy as reference, and alone.

This file names no repair. The tables say what a repair is expected to reach and, where that is not everything, why.
The fast tier repairs one fault of each rule that headers show, and of each repair of values; `make test-slow` all.
"""

from __future__ import annotations

import pytest

from degarble.faults.interface import Fault, faults
from degarble.registry import Level, rules
from degarble.repairing.plan import Plan
from degarble.repairing.undo import UNDO_FILE, invert
from tests.fixes.expected import ALONE, BYTES_ALONE, BYTES_WITH_REFERENCE, LARGE, NOT_WITH_REFERENCE
from tests.fixes.planted import TEXT_RULES, Planted, is_mended, other_tensors, planned, planner, planted, steps_for

STATIC = [fault for fault in faults() if not (fault.needs_forward_pass or fault.needs_range_walk)]
FAULTS = {fault.name: fault for fault in STATIC}


def _is_header(fault: Fault) -> bool:
    return all(check.level is Level.HEADER for check in rules()[fault.rule].checks) and not fault.needs_reference


def _fast() -> set[str]:
    """The first fault of each header rule in each outcome, and of each outcome of the other rules that are mended."""
    chosen: dict[tuple[str, str], str] = {}
    for fault in STATIC:
        outcome = ALONE.get(fault.name, "")
        if (_is_header(fault) and not fault.rule.startswith(TEXT_RULES)) or outcome:
            chosen.setdefault((fault.rule, outcome), fault.name)
    return set(chosen.values()) - LARGE


FAST = _fast()
EVERY = [
    pytest.param(fault, id=f"{fault.rule}-{fault.name}", marks=() if fault.name in FAST else pytest.mark.slow)
    for fault in STATIC
]


def _planted(fault: Fault) -> Planted:
    patient = planted(fault)
    if patient is None:
        pytest.skip("no golden checkpoint is suitable")
    return patient


@pytest.mark.parametrize("fault", EVERY)
def test_with_the_healthy_copy(fault: Fault) -> None:
    """Safe steps alone bring back a clean check and the healthy tensors, bit for bit."""
    patient = _planted(fault)
    plan = planned(patient, reference=True, unsafe=False)
    assert all(step.is_safe for step in plan.steps)
    if fault.name in NOT_WITH_REFERENCE:
        assert not is_mended(patient, plan) or not plan.steps
        assert plan.refused and all(one.reason for one in plan.refused)
        return
    assert is_mended(patient, plan), [one.reason for one in plan.refused]
    assert fault.name in BYTES_WITH_REFERENCE or not other_tensors(patient, plan), other_tensors(patient, plan)


@pytest.mark.parametrize("fault", EVERY)
def test_alone(fault: Fault) -> None:
    """Without a reference: mended by safe steps, by judgements, or refused with a reason."""
    patient = _planted(fault)
    plan = planned(patient, reference=False, unsafe=True)
    outcome = ALONE.get(fault.name, "")
    if not outcome:
        refused = [one for one in plan.refused if one.finding.rule == fault.rule]
        assert not steps_for(patient, plan) or not is_mended(patient, plan)
        assert refused or fault.needs_reference, [step.repair for step in plan.steps]
        return
    assert is_mended(patient, plan), [one.reason for one in plan.refused]
    judged = [(step.repair, step.judgement) for step in plan.steps if not step.is_safe]
    assert (outcome == "judged") == bool(judged), judged
    assert fault.name in BYTES_ALONE or not other_tensors(patient, plan), other_tensors(patient, plan)


@pytest.mark.parametrize("fault", EVERY)
def test_again_elsewhere_and_back(fault: Fault) -> None:
    """A second run finds nothing to do, a replay gives the same bytes, and the undo data give the sick copy back."""
    patient = _planted(fault)
    alone = bool(ALONE.get(fault.name, ""))
    plan = planned(patient, reference=not alone, unsafe=alone)
    fixed = plan.workspace.source()
    again = planner(patient, fixed, reference=not alone, unsafe=alone).plan()
    assert not again.steps
    replay = planner(patient, patient.sick, reference=not alone, unsafe=alone).replay(
        [(step.repair, step.finding) for step in plan.steps]
    )
    copy = replay.workspace.source()
    assert copy.files() == fixed.files()
    assert all(copy.read(name) == fixed.read(name) for name in fixed.files() if not fixed.is_unchanged(name))
    assert [step.edits for step in replay.steps] == [step.edits for step in plan.steps]
    assert_undone(patient, plan)


def assert_undone(patient: Planted, plan: Plan) -> None:
    """Put the sick files together from the fixed ones and the undo data."""
    fixed = plan.workspace.source()
    inverse = invert(fixed)
    kept = b"".join(patient.sick.read(part.file, part.start, part.length) for part in inverse.undo)
    for name, pieces in inverse.files.items():
        found = b"".join(
            kept[piece.start :][: piece.length]
            if piece.file == UNDO_FILE
            else fixed.read(piece.file, piece.start, piece.length)
            for piece in pieces
        )
        assert found == patient.sick.read(name), name
    assert set(patient.sick.files()) == ({*fixed.files()} - set(inverse.added)) | set(inverse.files)


def test_the_tables_name_faults() -> None:
    """A renamed fault would silently drop out."""
    for table in (ALONE, BYTES_ALONE, BYTES_WITH_REFERENCE, NOT_WITH_REFERENCE):
        assert set(table) <= set(FAULTS)
