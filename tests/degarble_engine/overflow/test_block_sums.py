"""Inputs of linears and of single experts against their stored scales: seen however the family multiplies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.overflow.block_sums import InputObserver
from degarble_engine.overflow.question import OverflowQuestion, overflow_of
from tests.degarble_engine.numerics.test_walk import quantised
from tests.degarble_engine.tiny_models import folder

LAYER = "model.layers.1"


def with_scales(source: Path, out: Path, scale_of: Callable[[str], float]) -> Path:
    """FP8 with one static activation scale for every linear, experts included."""
    quantised(source, out.with_name("dynamic"), "fp8")
    work = Workspace(open_target(out.with_name("dynamic")))
    for module in Evidence(open_target(out.with_name("dynamic")), Settings()).get("modules").linears():
        if module.payload is not None and module.form.is_quantized:
            scale = np.array([scale_of(module.name)], np.float32).astype(ml_dtypes.bfloat16)
            work.add(module.payload.file, f"{module.name}.input_scale", scale)
    work.save(out)
    return out


def overflowed(path: Path) -> Report:
    report: Report = overflow_of(
        WalkedModel.open(str(path)), OverflowQuestion(dtypes=("bf16",), engines=("vllm",), lengths=(24,))
    )
    return report


@pytest.mark.parametrize("leaf", ["gate_proj", "down_proj"])
def test_the_clipped_expert_is_named(leaf: str, tmp_path: Path) -> None:
    wanted = f"experts.2.{leaf}"
    path = with_scales(
        folder("qwen3-moe"), tmp_path / "static", lambda name: 1e-5 if wanted in name and LAYER in name else 1.0
    )
    report = overflowed(path)
    found = [one for one in report.findings if one.rule == "NUM305"]
    assert [one.location.module for one in found] == [f"{LAYER}.mlp.{wanted}"]
    assert found[0].location.expert == 2


def test_experts_that_no_token_reached_are_not_clean(tmp_path: Path) -> None:
    path = with_scales(folder("qwen3-moe", num_experts=32), tmp_path / "static", lambda _: 1.0)
    report = overflowed(path)
    said = " ".join(report.unjudged.values())
    assert "experts that no token came to" in said and "not checked" in said
    few = overflowed(with_scales(folder("llama"), tmp_path / "few" / "static", lambda _: 1.0))
    assert not few.unjudged


def test_experts_multiplied_from_the_right_are_seen() -> None:
    """gpt-oss: `hidden @ stack[expert]`, which is no linear."""
    seen: list[tuple[str, int]] = []

    class Listening(InputObserver):
        def see(self, name, values, expert=None):
            if expert is not None:
                seen.append(expert)

    from degarble_engine.overflow import range_walk as walking

    model = WalkedModel.open(str(folder("gpt-oss")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walking, "InputObserver", Listening)
        overflow_of(model, OverflowQuestion(dtypes=("bf16",), engines=("vllm",), lengths=(24,)))
    assert {name for name, _ in seen} == {"gate_up_proj", "down_proj"}
    assert {number for _, number in seen} == {0, 1, 2, 3}
