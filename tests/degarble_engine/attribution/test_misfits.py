"""WGT227 and WGT228 in `compare`: what a forgotten fold and a foreign weight do to their own outputs."""

from __future__ import annotations

import numpy as np
import pytest

from degarble.finding import Finding
from degarble.report.interface import Report
from tests.degarble_engine.test_compare import Candidate

NORM = "model.layers.1.input_layernorm"
READERS = ("q_proj", "k_proj", "v_proj")


def number(found: Finding, name: str) -> float:
    value = found.measured[name]
    assert isinstance(value, float)
    return value


@pytest.fixture(scope="module")
def forgotten() -> Report:
    """A fold into a norm that v_proj does not know of, and a weight of another layer."""
    one = Candidate("llama")
    scale = np.exp(np.random.default_rng(1).normal(0, 0.7, 64)).astype(np.float32)
    one.change(NORM, lambda values: values / scale)
    for leaf in READERS[:2]:
        one.change(f"model.layers.1.self_attn.{leaf}", lambda values: values * scale)
    other = np.array(one.modules["model.layers.3.mlp.up_proj"].dequantize())
    one.change("model.layers.2.mlp.up_proj", lambda values: other)
    return one.compared()


def test_a_forgotten_fold_is_told_under_its_cause(forgotten: Report) -> None:
    (found,) = [one for one in forgotten.findings if one.rule == "WGT227"]
    assert found.location.module == "model.layers.1.self_attn.v_proj" and NORM in found.message
    assert number(found, "relative_error") > 0.2
    (cause,) = [cause for cause in forgotten.causes if found in cause.symptoms]
    assert cause.finding.rule in ("DIV902", "DIV903")


def test_a_foreign_weight_is_told_under_its_cause(forgotten: Report) -> None:
    (found,) = [one for one in forgotten.findings if one.rule == "WGT228"]
    assert found.location.module == "model.layers.2.mlp.up_proj" and abs(number(found, "cosine_similarity")) < 0.3
    assert not any(cause.finding.rule.startswith("WGT") for cause in forgotten.causes)
    assert {cause.finding.location.module for cause in forgotten.causes} == {
        "model.layers.1.self_attn.v_proj",
        "model.layers.2.mlp.up_proj",
    }
