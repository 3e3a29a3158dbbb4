"""Who can be judged by NUM307: quantised modules whose rounding is plain. GPTQ, codebooks and plain weights cannot."""

from __future__ import annotations

import pytest

from degarble.checks.numerics.error_outside_bound import error_outside_bound
from degarble.evidence.forward_pass import ForwardPass
from degarble_engine.attribution.record import record_layer
from degarble_engine.attribution.straying import strays_of
from degarble_engine.numerics.tokens import random_batch
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from tests.conftest import unpacked_golden

HEALTHY = {
    "modelopt-nvfp4": 14, "llm-compressor-fp8-block": 14, "torchao-int8wo": 14, "llm-compressor-w4a16-awq-asym-g128": 14,
    "llm-compressor-w4a16-gptq-sym-g128": 0, "bitsandbytes-nf4": 0, "llm-compressor-w8a8-int8": 0, "own-untied-bf16": 0,
}  # fmt: skip
"""Golden file by another tool -> modules that can be judged."""
FAST = ("modelopt-nvfp4", "llm-compressor-w4a16-gptq-sym-g128")


@pytest.mark.parametrize("name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in HEALTHY])
def test_healthy_files_by_other_tools_are_silent(name: str) -> None:
    reference = name if name.startswith("own") else "base-bf16"
    models = [WalkedModel.open(str(unpacked_golden() / one)) for one in (reference, name)]
    batch = random_batch(models[0].vocab_size, 2, 48)
    records = [record_layer(step, step.runs[0].output) for step in LayerWalk(models, batch)]
    found = tuple(strays_of(records, models[1]))
    assert len(found) == HEALTHY[name]
    assert not list(error_outside_bound(ForwardPass(strays=found)))
    assert all(one.coverage > 0.92 and one.location.tensor for one in found)
