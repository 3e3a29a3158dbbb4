"""A norm to which one was added twice, in a model deep enough to have peers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from degarble.evidence import Evidence, Settings
from degarble.repairing.plan import Plan, Planner
from degarble.target import open_target
from tests.checks.weights.synthetic import Arrays, write_qwen2

LAYERS, NORM = 8, "model.layers.3.input_layernorm.weight"


def planned(folder: Path, shift: float, factor: float) -> tuple[Plan, np.ndarray]:
    """The plan for one norm that was changed among norms of a third; and what that norm was."""
    healthy: dict[str, np.ndarray] = {}

    def change(arrays: Arrays) -> None:
        for name in arrays:
            if "layernorm" in name:
                arrays[name] = arrays[name] * 0.3
        healthy["norm"] = arrays[NORM]
        arrays[NORM] = arrays[NORM] * factor + shift

    path = write_qwen2(folder, LAYERS, change)
    return Planner(open_target(path), Settings(), chosen=["WGT217"], unsafe=True).plan(), healthy["norm"]


def test_one_comes_off(tmp_path: Path) -> None:
    plan, healthy = planned(tmp_path / "model", shift=1.0, factor=1.0)
    (step,) = [step for step in plan.steps if step.finding.rule == "WGT217"]
    assert step.repair == "subtract-one-from-norm" and step.judgement
    module = Evidence(plan.workspace.source(), Settings()).get("modules")["model.layers.3.input_layernorm"]
    found = module.reader.read(module.any_part).astype(np.float64)
    assert np.abs(found - healthy).max() < 2**-7  # values near 1.3 have 8 bits in bf16


@pytest.mark.parametrize(("shift", "factor"), [(0.0, 4.0), (0.0, 4.3), (3.0, 1.0)])
def test_a_norm_that_was_scaled_or_shifted_otherwise_is_left_alone(tmp_path: Path, shift: float, factor: float) -> None:
    plan, _ = planned(tmp_path / "model", shift=shift, factor=factor)
    assert "WGT217" in {cause.finding.rule for cause in plan.before.causes}
    assert "subtract-one-from-norm" not in {step.repair for step in plan.steps}
    assert "WGT217" in {refused.finding.rule for refused in plan.refused}
