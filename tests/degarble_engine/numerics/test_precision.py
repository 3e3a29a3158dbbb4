"""Names of arithmetic, and what each does to numbers."""

from __future__ import annotations

import pytest
import torch

from degarble.errors import UsageError
from degarble_engine.numerics.precision import fp8, parse, rounded
from degarble_engine.numerics.walk import LayerWalk
from degarble_engine.numerics.walked_model import WalkedModel
from tests.degarble_engine.tiny_models import folder, tiny_batch


@pytest.mark.parametrize("text", ["", "fp4", "w1a16", "w4a99", "w4", "int4", "W4A16X"])
def test_unknown_names_are_usage_errors(text: str) -> None:
    with pytest.raises(UsageError, match="--dtype"):
        parse(text)


def test_bits_are_read() -> None:
    one = parse("W8A4")
    assert (one.weight_bits, one.activation_bits) == (8, 4)
    assert parse("w4a16").activation_bits is None


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_has_that_many_levels_and_half_a_step_of_error(bits: int) -> None:
    values = torch.randn(8, 128, generator=torch.Generator().manual_seed(1))
    found = rounded(values, bits, 32)
    groups, before = found.reshape(8, -1, 32), values.reshape(8, -1, 32)
    step = before.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    assert bool(((groups - before).abs() <= step / 2 * 1.0001).all())
    assert max(len(group.unique()) for group in groups.reshape(-1, 32)) <= 2**bits


def test_fp8_keeps_three_bits() -> None:
    values = torch.randn(16, 64, generator=torch.Generator().manual_seed(2))
    error = (fp8(values) - values).abs() / values.abs().clamp_min(1e-3)
    assert 0.005 < float(error.mean()) < 0.04


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp16-norm32", "fp8", "int8", "w4a16", "w8a4"])
def test_the_walk_computes_in_it(name: str) -> None:
    batch = tiny_batch()
    exact, rough = (WalkedModel.open(str(folder("llama")), parse(one)) for one in ("fp32", name))
    walk = LayerWalk([exact, rough], batch)
    for _ in walk:
        pass
    one, two = (hidden[batch.valid].float() for hidden in walk.hidden)
    error = float((one - two).norm() / one.norm())
    low, high = {"bf16": (1e-4, 0.03), "fp16": (1e-6, 0.004), "fp16-norm32": (1e-6, 0.004), "fp8": (1e-3, 0.3),
                 "int8": (1e-4, 0.1), "w4a16": (0.02, 0.8), "w8a4": (0.02, 1.0)}[name]  # fmt: skip
    assert low < error < high
