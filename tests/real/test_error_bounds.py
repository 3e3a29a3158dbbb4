"""The sigma model on a real model's own activations: honest rounding by four formats, first two layers."""

from __future__ import annotations

import statistics

import pytest

from degarble_engine.attribution.bound_measures import ALWAYS_HOLD, BoundMeasures, bound_measures
from degarble_engine.attribution.record import pairs_of
from degarble_engine.numerics.precision import FP32
from degarble_engine.numerics.tokens import built_in_texts, encode
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from tests.real.conftest import model_path

pytestmark = pytest.mark.real
LAYERS, TEXTS, MAX_TOKENS = 2, 2, 64


@pytest.mark.parametrize("form", ["gptq", "awq", "compressed-tensors", "fp8"])
def test_coverage_is_within_a_point_and_nothing_breaks_a_bound(form: str) -> None:
    candidate, reference = (WalkedModel.open(str(model_path(one))) for one in (form, "bf16"))
    batch = encode(built_in_texts()[:TEXTS], [reference.evidence], "built-in texts", MAX_TOKENS)
    found: list[BoundMeasures] = []
    for step in LayerWalk([reference, candidate], batch):
        if step.index == LAYERS:
            break
        found += [bound_measures(pair, FP32, is_gguf=False) for pair in pairs_of(step)[0]]
    assert len(found) == 7 * LAYERS
    assert abs(statistics.fmean(one.coverage[1] for one in found) - 0.954) < 0.01
    assert abs(statistics.median((one.predicted or 0.0) / one.error for one in found) - 1) < 0.05
    assert all(one.bounds[name].inside == 1.0 for one in found for name in ALWAYS_HOLD)
