"""`compare --bounds`: what holds, what is vacuous, what is not judged by name, and how errors of layers add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from degarble.checkpoint.workspace import Workspace
from degarble.evidence import Evidence, Settings
from degarble.report.bounds import bounds_lines
from degarble.report.interface import Report
from degarble.target import open_target
from degarble_engine.attribution.bound_measures import ALWAYS_HOLD, DETERMINISTIC, ORIGIN, SPECTRAL
from degarble_engine.attribution.bound_table import role_of
from degarble_engine.attribution.propagation import growth_exponent
from degarble_engine.comparison import Question, compare_models
from degarble_engine.numerics.origin_formula import Reading
from degarble_engine.numerics.precision import parse
from degarble_engine.numerics.walked_model import WalkedModel
from tests.conftest import unpacked_golden
from tests.degarble_engine.tiny_models import folder

TEXTS = ("A short text about nothing in particular, long enough for sixteen tokens or more.", "1 + 1 = 2 and so on")


def report_of(candidate: Path | Workspace, reference: Path, dtype: str = "fp32") -> Report:
    source = candidate.source() if isinstance(candidate, Workspace) else open_target(candidate)
    opened = WalkedModel(Evidence(source, Settings()), parse(dtype))
    asked = Question(texts=TEXTS if reference.name.startswith("base") else None, bounds=True)
    found: Report = compare_models(opened, WalkedModel.open(str(reference)), asked)
    return found


def bounds_in(report: Report) -> dict[str, Any]:
    assert report.comparison is not None
    found = report.comparison["bounds"]
    assert isinstance(found, dict)
    return found


def golden(name: str, dtype: str = "fp32") -> dict[str, Any]:
    return bounds_in(report_of(unpacked_golden() / name, unpacked_golden() / "base-bf16", dtype))


@pytest.fixture(scope="module")
def rounded() -> dict[str, Any]:
    return golden("auto-round-awq-w4-asym-g128")


def test_the_table_has_every_role_and_what_holds(rounded: dict[str, Any]) -> None:
    rows = {row["role"]: row for row in rounded["table"]}
    assert (
        set(rows) == {"QKV", "O", "FFN in", "FFN out", "all"} and rows["all"]["modules"] == rows["all"]["judged"] == 14
    )
    for row in rows.values():
        assert all(row["bounds"][name]["inside"] == 1.0 for name in ALWAYS_HOLD)
        assert abs(row["coverage"][1] - rounded["expected_coverage"][1]) < 0.015
        assert abs(row["predicted"] / row["error"] - 1) < 0.06
        assert row["bounds"][DETERMINISTIC]["vacuous"] and not row["bounds"][SPECTRAL]["vacuous"]
    assert abs(rows["all"]["coverage"][1] - 0.954) < 0.01


def test_it_is_told_in_lines_of_a_hundred_characters(rounded: dict[str, Any]) -> None:
    lines = list(bounds_lines(rounded))
    assert max(map(len, lines)) <= 100
    text = "\n".join(lines)
    assert "vacuous: deterministic, Cauchy-Schwarz" in text and "95.4%" in text and "92.3%" in text
    assert "layers in quadrature" in text and "KL" in text


@pytest.mark.parametrize(
    "value", [None, 5, {}, {"table": [{}]}, {"table": [{"bounds": 3, "coverage": "x"}], "propagation": {}}]
)
def test_a_report_from_elsewhere_may_hold_anything(value: object) -> None:
    assert all(len(line) <= 100 for line in bounds_lines(value))


def test_a_scheme_that_tells_no_scales_is_not_judged_by_name() -> None:
    found = golden("bitsandbytes-nf4")
    assert list(found["not_judged"].values()) == [14] and "bitsandbytes" in next(iter(found["not_judged"]))
    assert all(one["z"] is None and one["not_judged"] for one in found["modules"])
    assert any("no bounds for 14 modules" in line for line in bounds_lines(found))


def test_w8a4_of_the_origin_is_predicted_and_its_formula_is_beside_it() -> None:
    found = golden("base-bf16", "w8a4")
    row = found["table"][-1]
    assert abs(row["predicted"] / row["error"] - 1) < 0.1 and abs(row["coverage"][1] - 0.954) < 0.02
    assert row["bounds"][ORIGIN[Reading.ENTRIES]]["inside"] < 1.0 == row["bounds"][DETERMINISTIC]["inside"]


@pytest.fixture(scope="module")
def noisy() -> dict[str, Any]:
    """A model whose every linear is off by a little noise."""
    path = folder("llama")
    work, rng = Workspace(open_target(path)), np.random.default_rng(0)
    for name, module in Evidence(open_target(path), Settings()).get("modules").by_canonical.items():
        if "_proj" in name:
            values = np.array(module.dequantize())
            for tensor, array in module.replace(codes=values + rng.normal(0, 0.002, values.shape)).items():
                work.set(tensor, array)
    return bounds_in(report_of(work, path))


def test_layers_add_in_quadrature_and_their_kl_adds(noisy: dict[str, Any]) -> None:
    found = noisy["propagation"]
    assert [one["layer"] for one in found["layers"]] == [0, 1, 2, 3]
    assert abs(found["quadrature"] / found["measured"] - 1) < 0.25
    assert found["linear_sum"] > 1.4 * found["measured"]
    assert 0.6 < found["kl_sum"] / found["kl"] < 1.6
    last = found["layers"][-1]
    assert last["gain"] == pytest.approx(1.0) and last["probe_gain"] == pytest.approx(1.0, rel=1e-3)


def test_probes_predict_what_layers_do_to_an_error(noisy: dict[str, Any]) -> None:
    found = noisy["propagation"]
    assert abs(found["probed"] / found["quadrature"] - 1) < 0.5
    low, high = found["contraction_range"]
    assert 0 < low <= found["contraction"] <= high


@pytest.mark.parametrize("power", [0.36, 1.0])
def test_the_exponent_is_the_one_that_was_put_in(power: float) -> None:
    assert growth_exponent([0.02 * layer**power for layer in range(1, 31)]) == pytest.approx(power)
    assert growth_exponent([0.0, 0.1, 0.2]) is None


def test_a_copy_has_nothing_to_propagate() -> None:
    path = folder("llama")
    found = bounds_in(report_of(path, path))
    assert found["propagation"]["measured"] == 0.0 and found["propagation"]["growth_exponent"] is None
    assert all(one["gain"] is None and one["kl"] < 1e-6 for one in found["propagation"]["layers"])


@pytest.mark.parametrize(
    ("kind", "role"),
    [
        ("self_attn.q_proj", "QKV"),
        ("mlp.experts.*.down_proj", "expert FFN out"),
        ("mlp.gate", "router"),
        ("a.odd", "odd"),
    ],
)
def test_roles(kind: str, role: str) -> None:
    assert role_of(kind) == role


@pytest.mark.parametrize("family", ["qwen3-moe", pytest.param("deepseek-v3", marks=pytest.mark.slow)])
def test_other_families_have_bounds_too(family: str) -> None:
    found = bounds_in(report_of(folder(family), folder(family), "w8a8"))
    rows = {row["role"]: row for row in found["table"]}
    assert "expert FFN out" in rows and rows["QKV"]["judged"] > 0
    assert all(row["bounds"][DETERMINISTIC]["inside"] == 1.0 for row in rows.values() if row["judged"])
