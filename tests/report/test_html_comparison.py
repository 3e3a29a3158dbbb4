"""The section of a comparison: maps, growth, text; that nothing in a saved document can break it, and its limits."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from degarble.finding import Location
from degarble.report.comparison_data import MAX_KINDS, cells, kind_of
from degarble.report.html import MAX_COMPARISON, render
from degarble.report.html_comparison import LEVELS
from degarble.report.interface import Report
from tests.report.samples import HOSTILE, finding, report_of
from tests.report.test_html import Page

LEAVES = ("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")
GUILTY = "model.layers.4.mlp.up_proj"


def module(layer: int, leaf: str, **facts: Any) -> dict[str, Any]:
    name = f"model.layers.{layer}.{leaf}"
    worse = 8.0 if name == GUILTY else 1.0
    return {
        "module": name, "layer": layer, "sqnr_db": 20.0, "relative_l2": 0.05 * worse, "z": worse,
        "inherited_relative_l2": 0.01 * (layer + 1), "row_z": None, "slope": 1.0, **facts,
    }  # fmt: skip


def compared(num_layers: int = 6, text: str | None = "word ", **facts: Any) -> Report:
    """A comparison in which layer 4's up_proj is eight times as bad as its peers."""
    comparison: dict[str, Any] = {
        "tokens": 7, "texts": "built-in texts", "precision": "fp32", "kl_divergence": 0.42, "noise_kl": 0.001,
        "top1_agreement": 0.5, "layers": [
            {"layer": n, "inherited_error": 0.01 * (n + 1), "local_error": 0.02, "noise_floor": 1e-3, "residual_rms": 2.0}
            for n in range(num_layers)
        ],
        "modules": [module(n, leaf) for n in range(num_layers) for leaf in LEAVES],
        "by_token": [
            {"text": text, "sequence": n // 4, "position": n % 4, "kl": kl, "agrees": n % 2 == 0}
            for n, kl in enumerate((0.0, *LEVELS, None))
        ],
    }  # fmt: skip
    guilty = finding("DIV902", f"{GUILTY} is not the reference's", location=Location(module=GUILTY, layer=4))
    return report_of(guilty, comparison=comparison | facts)


def test_the_guilty_module_is_marked_in_every_map_and_told_in_words() -> None:
    page = Page(render(compared()))
    assert len([one for one in page.all("path") if one["class"] == "guilty"]) == 3
    assert len([one for one in page.all("rect") if one.get("class") == "heat"]) == 3 * 18
    words = page.text["desc"]
    assert "6 layers, 3 kinds of modules; from 0.05 (lightest) to 0.4 (darkest, model.layers.4.mlp.up_proj)" in words
    assert "1 marked, where a cause points" in words
    assert "inherited 0.01 behind layer 0, 0.06 behind layer 5" in words


def test_a_darker_square_is_a_larger_error() -> None:
    squares = [float(one["fill-opacity"]) for one in Page(render(compared())).all("rect")]
    first_map = squares[:18]
    assert first_map.index(max(first_map)) == 2 * 6 + 4  # third kind, fifth layer
    assert max(first_map) == 1.0 and min(first_map) == 0.08


def test_lines_have_dashes_names_and_a_table() -> None:
    page = Page(render(compared()))
    assert [line["class"] for line in page.all("polyline")] == ["inherited", "local", "usual"]
    for name in ("inherited", "local", "noise floor"):
        assert name in page.text["text"]
    assert "Numbers of the layers" in page.text["summary"] and "Numbers of the modules" in page.text["summary"]


def test_the_text_shows_where_the_models_part() -> None:
    page = Page(render(compared(text="wo\nrd ")))
    spans = [one["class"] for one in page.all("span") if "title" in one]
    assert spans == ["", "t1 other", "t2", "t3 other", "t4", "t5 other", "t5"]
    groups = [one["aria-label"] for one in page.all("div") if one.get("class") == "tokens"]
    assert groups == ["Text 1", "Text 2"]
    assert "wo↵rd" in page.text["span"] and "not finite" in page.text["table"]
    assert "▯" in Page(render(compared(text=None))).text["span"]


def test_the_page_without_a_comparison_has_no_such_section() -> None:
    page = Page(render(report_of()))
    assert "Comparison" not in page.text["main"] and not page.all("rect")


@pytest.mark.parametrize(
    "found",
    [
        {}, {"layers": 5, "modules": "x", "by_token": {}}, {"layers": [1, None], "modules": [{"module": 3, "layer": 0}]},
        {"modules": [{"module": "a", "layer": -1, "z": 1.0}, {"module": "b", "layer": 10**30, "z": 1.0}]},
        {"layers": [{"layer": True, "inherited_error": 1.0}, {"layer": 0, "inherited_error": math.inf}]},
        {"by_token": [{"sequence": "0"}, {"sequence": 0, "position": 1, "text": 7, "kl": "x", "agrees": 1}]},
        {"modules": [module(0, "a", z=10**400), module(1, "a", z=0.0), module(2, "a", relative_l2=-1.0)]},
        {"tokens": [1] * 50, "kl_divergence": "NaN", "top1_agreement": None},
    ],
)  # fmt: skip
def test_anything_may_stand_in_a_file(found: dict[str, Any]) -> None:
    page = Page(render(report_of(comparison=found)))
    assert "Comparison" in page.text["h2"]


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_texts_stay_text(case: str) -> None:
    text = HOSTILE[case]
    rows = [module(n, leaf, module=f"model.layers.{n}.{text}") for n in range(3) for leaf in LEAVES]
    page = Page(render(compared(text=text, modules=rows, texts=text, precision=text)))
    ours = {tag for tag, _ in Page(render(compared())).elements}
    assert {tag for tag, _ in page.elements} <= ours | {"br"}
    assert len(page.all("script")) == 1
    for _, attributes in page.elements:
        assert not {"style", "src"} & set(attributes) and not any(name.startswith("on") for name in attributes)


def test_experts_share_a_row_that_shows_the_worst() -> None:
    rows = [module(0, f"mlp.experts.{n}.up_proj", z=float(n)) for n in range(9)]
    found = cells(rows, "z")
    assert [(cell.kind, cell.value) for cell in found] == [("mlp.experts.*.up_proj", 8.0)]
    assert kind_of("lm_head") == "lm_head"
    many = [module(0, f"part{chr(65 + n // 26)}{chr(65 + n % 26)}") for n in range(200)]
    assert len(cells(many, "z")) == MAX_KINDS


def test_a_deep_model_shares_squares() -> None:
    page = Page(render(compared(num_layers=130)))
    assert "2 layers share a square" in page.text["desc"]
    assert len([one for one in page.all("rect") if one.get("class") == "heat"]) == 3 * 3 * 65


def test_a_model_of_many_experts_stays_below_the_limit() -> None:
    rows = [module(n % 61, f"mlp.experts.{n // 61}.up_proj") for n in range(20_000)]
    report = compared(num_layers=61, modules=rows)
    page = Page(render(report))
    assert len(render(report)) < 5_000_000
    assert "it holds no single modules and tokens" in page.text["main"]
    inside = json.loads(page.text["script"])["comparison"]
    assert inside["kl_divergence"] == 0.42 and len(json.dumps(inside)) < MAX_COMPARISON
