"""Variance and reach against what formats really do: z = 1, and no weight moved by more than its reach."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from degarble.evidence import Evidence, Settings
from degarble.formats.interface import StoredModule
from degarble.target import open_target
from degarble_engine.attribution.rounding_step import reference_steps, ulps
from degarble_engine.attribution.stored_rounding import stored_rounding, why_unknown
from tests.conftest import unpacked_golden

FORMS = {
    "auto-round-awq-w4-asym-g128": 0.25, "llm-compressor-fp8-block": 0.03, "llm-compressor-fp8-dynamic": 0.03,
    "llm-compressor-nvfp4": 0.05, "llm-compressor-mxfp4": 0.25, "modelopt-fp8": 0.05, "modelopt-nvfp4": 0.05,
    "torchao-int8wo": 0.03, "modelopt-int4-awq": 0.35,
}  # fmt: skip
"""Golden files by plain rounding -> how far from 1 the ratio of measured and expected error may be."""
CLIPPED = ("auto-round-awq-w4-asym-g128", "modelopt-int4-awq", "llm-compressor-mxfp4")


def module(name: str, leaf: str) -> StoredModule:
    found: StoredModule = Evidence(open_target(unpacked_golden() / name), Settings()).get("modules").by_canonical[leaf]
    return found


@pytest.mark.parametrize("name", FORMS)
def test_rounding_error_is_what_the_steps_say(name: str) -> None:
    leaf = "model.layers.0.self_attn.o_proj"
    stored = module(name, leaf)
    factor = np.ones((1, 1), np.float32)
    if stored.part("pre_quant_scale") is not None:
        factor = stored.array("pre_quant_scale").astype(np.float32).reshape(1, -1)
    weight = torch.from_numpy(np.array(stored.dequantize() * factor, np.float32))
    rounding = stored_rounding(stored, weight, is_gguf=False)
    assert rounding is not None and rounding.variance.shape == weight.shape
    wanted = torch.from_numpy(np.array(module("base-bf16", leaf).dequantize(), np.float32))
    error = weight - wanted
    ratio = float((error.pow(2).sum() / rounding.variance.sum()).sqrt())
    assert abs(ratio - 1) < FORMS[name], ratio
    if name not in CLIPPED:
        assert float((error.abs() <= 1.08 * rounding.reach + 1e-6).float().mean()) > 0.999


def test_an_ulp_is_the_distance_to_the_next_number() -> None:
    values = torch.tensor([1.0, 1.9, 2.0, -3.0, 0.0, 0.3])
    bf16 = values.to(torch.bfloat16)
    above = torch.nextafter(bf16.abs(), torch.tensor(math.inf, dtype=torch.bfloat16)).float() - bf16.abs().float()
    above[4] = 0.0
    assert torch.equal(ulps(bf16.float(), 7), above)


def test_four_bits_of_the_reference() -> None:
    weight = torch.randn(8, 128, generator=torch.Generator().manual_seed(0))
    steps = reference_steps(weight)
    first = weight[0, :64]
    assert torch.allclose(steps[0, :64], (first.max() - first.min()) / 15)
    assert steps.shape == weight.shape


@pytest.mark.parametrize("name", ["llama.cpp-q4_0", "bitsandbytes-nf4"])
def test_what_tells_no_scales_has_no_steps(name: str) -> None:
    folder = unpacked_golden() / name
    target = next(iter(folder.glob("*.gguf")), folder)
    modules = Evidence(open_target(target), Settings()).get("modules").by_canonical
    stored = modules["model.layers.0.mlp.up_proj"]
    shape = stored.form.shape or (1, 1)
    assert stored_rounding(stored, torch.zeros(shape), is_gguf=target.suffix == ".gguf") is None
    assert stored.form.format in why_unknown(stored, target.suffix == ".gguf")
