"""`compare --dtype float16`: the rules of the range are judged too, and only then."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from typing import Any

import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.faults.interface import NotApplicable, Patient, faults
from degarble.finding import Role, Severity
from degarble.report.interface import Report, Status
from degarble.target import open_target
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.precision import parse
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.overflow.test_every_overflow_rule import patients
from tests.degarble_engine.test_compare import Candidate
from tests.planting import points_at

RANGE_RULES = {"NUM302", "NUM304", "NUM305", "NUM309"}
TEXTS = ("A short text about nothing in particular, long enough for sixteen tokens or more.", "1 + 1 = 2")
FAULTS = [fault for fault in faults() if fault.needs_range_walk]


def compared(
    work: Workspace, reference: Workspace, dtype: str = "float16", texts: Sequence[str] | None = None
) -> Report:
    candidate, healthy = (
        WalkedModel(Evidence(one.source(), Settings()), parse(kind))
        for one, kind in ((work, dtype), (reference, "fp32"))
    )
    report: Report = compare_models(candidate, healthy, Question(precision=parse(dtype), texts=texts))
    return report


def test_a_healthy_copy_is_judged_and_silent() -> None:
    one = Candidate("llama")
    report = compared(one.work, one.work)
    assert report.status is Status.OK, [f"{found.rule} {found.message}" for found in report.findings]
    judged = {result.rule: result.outcome for result in report.results if result.rule in RANGE_RULES}
    assert set(judged) == RANGE_RULES and report.summary["skipped"] == 0
    assert not RANGE_RULES & {result.rule for result in compared(one.work, one.work, "bf16").results}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.rule}-{fault.name}")
def test_what_half_alone_does_to_an_equal_model_is_the_first_cause(fault: Any) -> None:
    """The reference has the same weights: in fp32 nothing is wrong with them."""
    for path in patients():
        source = open_target(path)
        work = Workspace(source)
        rng = random.Random(zlib.crc32(fault.name.encode()))
        try:
            place = fault.function(Patient(evidence=Evidence(source, Settings()), workspace=work, rng=rng))
        except (NotApplicable, ValueError):
            continue
        report = compared(work, work, texts=None if path.suffix == ".gguf" else TEXTS)
        causes = [cause.finding for cause in report.causes]
        assert causes[0].rule in RANGE_RULES, [f"{one.rule} {one.message}" for one in report.findings]
        mine = [one for one in causes if one.rule == fault.rule]
        assert any(points_at(one, place) for one in mine), [one.location for one in mine]
        assert causes[0] in mine or mine[0].severity is Severity.WARNING
        return
    pytest.fail("applies nowhere")


def test_scores_beyond_half_are_the_first_cause_in_an_equal_model() -> None:
    one = Candidate("llama")
    for name in ("q_proj", "k_proj"):
        one.change(f"model.layers.0.self_attn.{name}", lambda weight: weight * 2.0**9)
    report = compared(one.work, one.work)
    first = report.causes[0].finding
    assert (first.rule, first.location.module) == ("NUM304", "model.layers.0.self_attn")
    assert first.measured["finite_engines"] == ["vllm"]


def test_damage_explains_the_overflow_behind_it() -> None:
    one = Candidate("llama")
    one.change("model.layers.1.mlp.down_proj", lambda weight: weight * 2.0**16)
    report = compared(one.work, Candidate("llama").work)
    assert report.causes[0].finding.rule == "DIV903"
    roles = {found.rule: found.role for found in report.findings}
    assert roles["NUM302"] is Role.SYMPTOM
