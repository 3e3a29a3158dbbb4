"""Every fault of a rule that `degarble overflow` judges, planted in golden checkpoints and found by it."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import Fault, NotApplicable, Patient, faults
from degarble.report.interface import Report, Status
from degarble.target import open_target
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.question import OverflowQuestion, overflow_of
from tests.conftest import unpacked_golden
from tests.planting import points_at

FAULTS = [fault for fault in faults() if fault.needs_range_walk]
FIRST = ("base-bf16", "llm-compressor-fp8-static")
QUESTION = OverflowQuestion(dtypes=("fp16",), engines=("transformers", "vllm"), lengths=(24,))


def patients() -> list[Path]:
    golden = unpacked_golden()
    mixed = sorted(golden.glob("*/*.gguf"))
    folders = [path for path in sorted(golden.iterdir()) if path.name.startswith(FIRST)]
    return [*folders, *[one for one in mixed if "Q4_K" in one.name.upper() or "Q4_1" in one.name.upper()]]


def overflowed(work: Workspace) -> Report:
    report: Report = overflow_of(WalkedModel(Evidence(work.source(), Settings())), QUESTION)
    return report


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_the_fault_is_found(fault: Fault) -> None:
    """In the first checkpoint that it applies to; nothing was found before."""
    reasons = []
    for path in patients():
        source = open_target(path)
        work = Workspace(source)
        rng = random.Random(zlib.crc32(fault.name.encode()))
        try:
            place = fault.function(Patient(evidence=Evidence(source, Settings()), workspace=work, rng=rng))
        except (NotApplicable, ValueError) as reason:
            reasons.append(f"{path.name}: {reason}")
            continue
        healthy = overflowed(Workspace(source))
        assert healthy.status is Status.OK, [f"{one.rule} {one.message}" for one in healthy.findings]
        report = overflowed(work)
        found = [finding for finding in report.findings if finding.rule == fault.rule]
        assert found, [f"{one.rule} {one.message}" for one in report.findings]
        assert any(points_at(one, place) for one in found), [one.location for one in found]
        return
    pytest.fail(f"applies nowhere: {reasons}")
