"""Forms of caches on known tensors, and a key bias that no cache with one scale survives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError
from degarble.evidence import Evidence, Settings
from degarble.report.kv_precision import kv_precision_lines
from degarble.target import open_target
from degarble_engine.kv_precision.cache_form import AXES, read_form
from degarble_engine.kv_precision.question import kv_precision_of
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import folder

VALID = torch.tensor([[True] * 6 + [False] * 2, [True] * 8])


@pytest.mark.parametrize("axis", sorted(AXES))
def test_a_step_is_that_of_those_who_share_it(axis: str) -> None:
    """No value is off by more than half a step of its own range; and padding widens nobody's range."""
    values = torch.randn(2, 3, 8, 4, generator=torch.Generator().manual_seed(1)) * torch.tensor([1, 50.0, 1, 1])
    wild = values.masked_fill(~VALID[:, None, :, None], 1e6)
    for name, codes in (("int8", 255), ("int4", 15)):
        form = read_form(f"{name}:{axis}")
        counted = values.masked_fill(~VALID[:, None, :, None], 0.0)
        span = counted.amax(AXES[axis], keepdim=True) - counted.amin(AXES[axis], keepdim=True)
        error = (form.key(wild, VALID) - wild).abs().masked_fill(~VALID[:, None, :, None], 0.0)
        assert bool((error <= span / codes / 2 * 1.001 + 1e-6).all())
        assert float(error.max()) > 0


def test_fp8_is_torch_s() -> None:
    values = torch.linspace(-448, 448, 64).reshape(1, 1, 8, 8)
    given = read_form("fp8").value(values, torch.ones(1, 8, dtype=torch.bool))
    assert torch.equal(given, values.to(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("text", ["", "fp4", "int4:row", "int4:head,token,head", "int4:"])
def test_forms_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--kv-dtype"):
        read_form(text)


def test_a_key_bias_of_one_layer_is_what_the_cache_loses() -> None:
    """WGT218's hazard: the layer it names is the one whose keys are lost, whatever shares a scale.

    By channel too: the rotary embedding has turned the bias into a wave over tokens before the cache sees it.
    """
    source = open_target(folder("qwen2", num_hidden_layers=5))
    work = Workspace(source)
    module = Evidence(source, Settings()).get("modules").by_canonical["model.layers.2.self_attn.k_proj"]
    bias = np.array(module.array("bias"))
    bias[3] = 600
    work.set(module.parts["bias"].name, bias)
    named = [one for one in check_of(work) if one.rule == "WGT218"]
    assert [one.location.layer for one in named] == [2]
    model = WalkedModel(Evidence(work.source(), Settings()))
    report = kv_precision_of(model, [read_form("int4:tensor"), read_form("int4:head"), read_form("int4:channel")])
    assert report.comparison is not None
    forms: Any = report.comparison["forms"]
    healthy = kv_precision_of(WalkedModel(Evidence(source, Settings())), [read_form("int4:head")]).comparison
    assert healthy is not None
    clean: Any = healthy["forms"]
    assert not clean[0]["hazards"]
    for form in forms:
        assert [(row["layer"], row["part"]) for row in form["hazards"]] == [(2, "key")]
    assert any("stands out: key of layer 2" in line for line in kv_precision_lines(report.comparison))


def check_of(work: Workspace) -> Any:
    from degarble.api import check_source

    return check_source(work.source()).findings


def test_every_form_costs_less_with_more_bits() -> None:
    model = WalkedModel.open(str(folder("llama")))
    report = kv_precision_of(model, [read_form("int4:head"), read_form("int8:head"), read_form("fp8")])
    assert report.comparison is not None
    forms: Any = report.comparison["forms"]
    four, eight, _ = forms
    assert eight["median_key_db"] > four["median_key_db"] + 15
    assert eight["kl_divergence"] < four["kl_divergence"]
    assert len(four["layers"]) == 4
