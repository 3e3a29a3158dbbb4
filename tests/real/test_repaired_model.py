"""A model that talks garbage in transformers answers as the healthy one does once it is repaired."""

from __future__ import annotations

import pytest

from tests.real.repaired import CASES, Case, prove

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if at < 2 else pytest.mark.slow) for at, case in enumerate(CASES)], ids=str
)
def test_the_healthy_answer_comes_back(case: Case) -> None:
    """Word for word, and every repaired tensor bit for bit."""
    pytest.importorskip("transformers")
    proof = prove(case)
    assert "Paris" in proof.healthy
    assert proof.sick != proof.healthy
    assert proof.outcome.plan.steps and proof.outcome.exit_code("error") == 0
    assert all(step.is_safe for step in proof.outcome.plan.steps) is not case.unsafe
    assert proof.fixed == proof.healthy
    assert not proof.other_tensors
