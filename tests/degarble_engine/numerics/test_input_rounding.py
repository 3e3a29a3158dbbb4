"""Rounded inputs: as the precision rounds them, with a reach that they keep, beside a gain or without."""

from __future__ import annotations

import pytest
import torch

from degarble_engine.numerics.input_rounding import input_rounding
from degarble_engine.numerics.precision import parse

VALUES = torch.randn(6, 32, generator=torch.Generator().manual_seed(2))
GAIN = torch.randn(32, generator=torch.Generator().manual_seed(3)).exp()


@pytest.mark.parametrize("name", ["fp32", "bf16", "w4a16"])
def test_arithmetics_that_round_no_inputs(name: str) -> None:
    found, rounding = input_rounding(VALUES, GAIN, parse(name))
    assert found is VALUES and rounding is None


@pytest.mark.parametrize("name", ["fp8", "int8", "w8a4", "w4a2"])
def test_no_value_moves_farther_than_its_reach(name: str) -> None:
    precision = parse(name)
    found, rounding = input_rounding(VALUES, None, precision)
    assert rounding is not None and torch.equal(found, precision.input(VALUES))
    assert bool(((found - VALUES).abs() <= rounding.reach * 1.0001 + 1e-7).all())
    assert torch.allclose(rounding.variance, (found - VALUES).square())


@pytest.mark.parametrize("name", ["fp8", "w8a4"])
def test_the_gain_is_there_while_rounding_and_gone_afterwards(name: str) -> None:
    precision = parse(name)
    found, rounding = input_rounding(VALUES, GAIN, precision)
    assert rounding is not None
    assert torch.allclose(found * GAIN, precision.input(VALUES * GAIN), rtol=1e-5)
    assert bool(((found - VALUES).abs() <= rounding.reach * 1.0001 + 1e-6).all())


def test_a_column_that_the_gain_removes_stays_finite() -> None:
    gain = GAIN.clone()
    gain[4] = 0.0
    found, rounding = input_rounding(VALUES, gain, parse("int8"))
    assert rounding is not None and bool(torch.isfinite(found).all()) and bool(torch.isfinite(rounding.reach).all())
