"""Costs against the divergence that they foretell, and a model that is written by its plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.report.interface import Status
from degarble.target import open_target
from degarble_engine.numerics.divergence import divergence
from degarble_engine.numerics.tokens import random_batch
from degarble_engine.numerics.walk import final_states
from degarble_engine.numerics.walked_model import WalkedModel
from degarble_engine.quantize.calibration_stream import chunks_of
from degarble_engine.quantize.choice import choose
from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.quantizing import quantize
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.scheme import parse_scheme
from degarble_engine.sensitivity.plan import make_plan, options_of
from tests.degarble_engine.quantize.tiny_jobs import calibration_file, source_of


def recipe(**options: object) -> Recipe:
    usual = {"scheme": "W4A16", "method": "rtn", "group_size": 32, "calibration": calibration_file()}
    return Recipe(**{**usual, **options})  # type: ignore[arg-type]


def test_costs_are_the_divergence_of_one_unit_alone(tmp_path: Path) -> None:
    """Second order, by drawn labels, on the same text: within a factor of two, and in the same order."""
    wanted = recipe(target_bits=6.0)
    model = WalkedModel.open(str(source_of("llama")))
    batch = random_batch(model.vocab_size, 16, 64)
    plan = make_plan(model, wanted, choose(model, wanted), chunks_of(model, batch), tmp_path / "s")
    scheme = parse_scheme("W4A16", 32)
    measured, told = [], []
    for unit in plan.units:

        def edit(name: str, values: torch.Tensor, modules: tuple[str, ...] = unit.modules) -> torch.Tensor:
            if name.removesuffix(".weight") not in modules:
                return values
            return search_grid(values, scheme, torch.float32).round_all(values)

        states = final_states([model, changed := model.counterfactual(edit)], batch)
        measured.append(divergence(model, states[0], changed, states[1]).kl)
        told.append(unit.costs[0])
    ratios = torch.tensor(told) / torch.tensor(measured)
    assert bool(((ratios > 0.4) & (ratios < 2.5)).all()), ratios
    order = [torch.tensor(values).argsort().argsort().float() for values in (told, measured)]
    assert float(torch.corrcoef(torch.stack(order))[0, 1]) > 0.8


@pytest.mark.parametrize("family", ["llama", "qwen3-moe"])
def test_a_model_by_its_plan(family: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    report = quantize(str(source_of(family)), str(out), recipe(target_bits=6.5))
    assert report.status is Status.OK, report.findings
    table = report.comparison
    assert table is not None
    plan = table["plan"]
    assert isinstance(plan, dict) and plan["bits"] <= 6.5 and plan["cost"] < plan["uniform_cost"]
    modules = Evidence(open_target(str(out)), Settings()).get("modules")
    for unit in plan["units"]:
        name = unit["schemes"][unit["chosen"]]
        for module in unit["modules"]:
            form = modules[module].form
            assert form.is_quantized == (name != "none")
            assert name == "none" or (form.scheme is not None and f"W{form.scheme.num_bits}A16" == name)
    assert json.loads((out / "quantization.json").read_text())["plan"]["target_bits"] == 6.5


def test_targets_that_cannot_be_met(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"takes \d"):
        quantize(str(source_of("llama")), str(tmp_path / "out"), recipe(target_bits=4.2))
    with pytest.raises(UsageError, match="integers in groups"):
        options_of(Recipe(scheme="FP8", target_bits=5.0))
    with pytest.raises(UsageError, match="one scheme"):
        options_of(Recipe(scheme="W4A16", export="awq", target_bits=5.0))
