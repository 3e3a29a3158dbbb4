"""The board: it is what the script makes, and asks for series that there are."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from tests.deploy.metric_names import DEPLOY, ROOT, is_known, metrics_of, recorded

BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "degarble.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]


def script() -> Any:
    """The module; it imports the SDK only when it writes."""
    spec = importlib.util.spec_from_file_location("make_grafana", ROOT / "scripts" / "make_grafana.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_panels_are_those_of_the_script() -> None:
    plots = [plot for row in script().ROWS.values() for plot in row]
    assert [(panel["title"], panel["targets"][0]["expr"]) for panel in PANELS] == [
        (plot.title, plot.expression) for plot in plots
    ]


def test_the_file_is_what_the_sdk_makes() -> None:
    pytest.importorskip("grafana_foundation_sdk")
    made = script()
    assert made.BOARD.read_text(encoding="utf-8") == made.written()


def test_every_name_exists() -> None:
    named = {name for expression in EXPRESSIONS for name in metrics_of(expression)}
    assert named and not {name for name in named if not is_known(name, recorded())}


def test_no_expression_depends_on_a_spelling() -> None:
    assert not {name for one in EXPRESSIONS for name in metrics_of(one) if ":" in name} - recorded()


def test_every_expression_parses() -> None:
    promql = pytest.importorskip("promql_parser")
    for expression in EXPRESSIONS:
        promql.parse(expression.replace("$__rate_interval", "5m"))


def test_builds_are_told_apart() -> None:
    """What boards of engines lack: integrity by model, quantisation, digest and canary."""
    integrity = [
        panel["targets"][0] for panel in PANELS if panel["title"] in ("Damaged answers", "Guard trips per answer")
    ]
    for label in ("model_name", "quantization", "checkpoint_digest"):
        assert all(f"{{{{{label}}}}}" in target["legendFormat"] for target in integrity)
    assert any("degarble_canary_garbage" in expression for expression in EXPRESSIONS)
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert {panel["datasource"]["uid"] for panel in PANELS} == {"${datasource}"}
