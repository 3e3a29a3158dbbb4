"""Lengths against a time: the shortest is always run, and what is not run is never clean."""

from __future__ import annotations

from itertools import count

import pytest

from degarble.report.interface import Status
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.budget import affordable
from degarble_engine.overflow.question import OverflowQuestion, overflow_of
from degarble_engine.overflow.switches import lanes_of
from tests.degarble_engine.tiny_models import folder


@pytest.mark.parametrize(
    ("seconds", "fitting"), [(1.0, (64,)), (5.0, (64, 128)), (9.0, (64, 128, 256)), (1e6, (64, 128, 256, 4096))]
)
def test_lengths_that_fit(seconds: float, fitting: tuple[int, ...]) -> None:
    """A layer of four takes a second at 128 tokens: 256 take 8.5 s."""
    ticks = count()
    found, said = affordable(
        WalkedModel.open(str(folder("llama"))), lanes_of(["fp16"], ["vllm"]), (64, 128, 256, 4096), seconds,
        clock=lambda: float(next(ticks)),
    )  # fmt: skip
    assert found == fitting
    assert list(said) == [f"length {one}" for one in (64, 128, 256, 4096) if one not in fitting]


def test_a_length_that_was_not_run_is_not_clean() -> None:
    asked = OverflowQuestion(dtypes=("bf16",), engines=("vllm",), lengths=(24, 4096), budget_seconds=1e-9)
    report = overflow_of(WalkedModel.open(str(folder("llama"))), asked)
    assert report.status is Status.PARTIAL and "not run" in report.unjudged["length 4096"]
    rows = report.comparison["rows"] if report.comparison is not None else None
    assert isinstance(rows, list) and list(rows[0]["lengths"]) == ["24"]
