"""Bounds that are bounds are never broken, whatever the numbers; the prediction fits honest rounding and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from degarble_engine.numerics.error_bounds import (
    RoundedLinear,
    Rounding,
    coverage,
    expected_coverage,
    rms,
    spectral_norm,
    z_by_row,
)
from degarble_engine.numerics.input_rounding import input_rounding
from degarble_engine.numerics.precision import parse

SLACK = 1 + 1e-4
"""Products are summed in fp32."""
ARITHMETICS = ("fp32", "fp8", "int8", "w16a4", "w16a2")


def grouped(weight: Tensor, bits: int, size: int, symmetric: bool) -> tuple[Tensor, Tensor]:
    """Round to nearest, and the step of every weight."""
    groups = weight.reshape(weight.shape[0], -1, size)
    if symmetric:
        top = 2 ** (bits - 1) - 1
        step = groups.abs().amax(-1, keepdim=True).clamp_min(1e-30) / top
        found = (groups / step).round().clamp(-top, top) * step
    else:
        low, high = groups.amin(-1, keepdim=True).clamp_max(0), groups.amax(-1, keepdim=True).clamp_min(0)
        step = (high - low).clamp_min(1e-30) / (2**bits - 1)
        found = ((groups - low) / step).round() * step + low
    return found.reshape(weight.shape), step.expand_as(groups).reshape(weight.shape)


def draw_values(shape: tuple[int, int], kind: str, generator: torch.Generator) -> Tensor:
    """Of every kind of distribution that models have, and some that they do not."""
    values = torch.randn(shape, generator=generator)
    if kind == "outliers":
        values[:, :: max(1, shape[1] // 3)] *= 300
    elif kind == "heavy":
        values = values.sign() * values.abs().exp().pow(2)
    elif kind == "constant":
        values = torch.ones(shape)
    elif kind == "sparse":
        values = values * (torch.rand(shape, generator=generator) < 0.1)
    return values


KINDS = ("normal", "outliers", "heavy", "constant", "sparse")


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    bits=st.integers(2, 8),
    size=st.sampled_from([4, 8, 32]),
    groups=st.integers(1, 5),
    rows=st.integers(1, 24),
    symmetric=st.booleans(),
    weights=st.sampled_from(KINDS),
    inputs=st.sampled_from(KINDS),
    arithmetic=st.sampled_from(ARITHMETICS),
    scale=st.sampled_from([1e-6, 1.0, 1e4]),
)
def test_bounds_are_never_broken(
    seed: int, bits: int, size: int, groups: int, rows: int, symmetric: bool, weights: str, inputs: str,
    arithmetic: str, scale: float,
) -> None:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    weight = draw_values((rows, size * groups), weights, generator) * scale
    given_to = draw_values((7, size * groups), inputs, generator)
    found, step = grouped(weight, bits, size, symmetric)
    read, noise = input_rounding(given_to, None, parse(arithmetic))
    linear = RoundedLinear(
        quantized=found, inputs=given_to, rounding=Rounding.uniform(step), reference=weight, input_rounding=noise
    )
    error = (read.double() @ found.double().T - given_to.double() @ weight.double().T).abs()
    tiny = 1e-5 * float(linear.deterministic().max()) + 1e-30
    assert bool((error <= linear.deterministic() * SLACK + tiny).all())
    assert bool((error <= linear.cauchy_schwarz() * SLACK + tiny).all())
    assert bool((error.norm(dim=1) <= linear.spectral() * SLACK + tiny * math.sqrt(rows)).all())
    assert bool((error <= linear.hoeffding(1e-30) * SLACK + tiny).all())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**20), rows=st.integers(1, 40), columns=st.integers(1, 40), kind=st.sampled_from(KINDS))
def test_the_spectral_norm_is_never_too_small(seed: int, rows: int, columns: int, kind: str) -> None:
    matrix = draw_values((rows, columns), kind, torch.Generator().manual_seed(seed))
    exact = float(torch.linalg.matrix_norm(matrix.double(), ord=2))
    assert exact * (1 - 1e-9) <= spectral_norm(matrix) <= 1.35 * exact + 1e-30


def test_norms_at_the_edges() -> None:
    assert spectral_norm(torch.zeros(3, 5)) == 0.0
    assert spectral_norm(torch.full((2, 2), math.inf)) == math.inf
    assert math.isclose(spectral_norm(1e30 * torch.eye(4)), 1e30, rel_tol=0.3)
    with pytest.raises(ValueError, match="reference"):
        RoundedLinear(quantized=torch.eye(2), inputs=torch.eye(2), rounding=Rounding.uniform(torch.eye(2))).spectral()


WEIGHT = torch.randn(512, 768, generator=torch.Generator().manual_seed(3))
TOKENS = (
    torch.randn(96, 768, generator=torch.Generator().manual_seed(4))
    * torch.randn(768, generator=torch.Generator().manual_seed(5)).exp()
)  # channels of very different size, as models have them


def honest(bits: int, symmetric: bool, arithmetic: str) -> tuple[Tensor, Tensor]:
    """Error and sigma."""
    found, step = grouped(WEIGHT, bits, 64, symmetric)
    read, noise = input_rounding(TOKENS, None, parse(arithmetic))
    linear = RoundedLinear(quantized=found, inputs=TOKENS, rounding=Rounding.uniform(step), input_rounding=noise)
    return read @ found.T - TOKENS @ WEIGHT.T, linear.sigma()


@pytest.mark.parametrize("arithmetic", ["fp32", "fp8", "int8", "w16a4"])
@pytest.mark.parametrize(("bits", "symmetric"), [(3, False), (4, False), (4, True), (8, True)])
def test_the_prediction_is_right_to_a_few_per_cent(bits: int, symmetric: bool, arithmetic: str) -> None:
    error, sigma = honest(bits, symmetric, arithmetic)
    assert abs(rms(error) / rms(sigma) - 1) < 0.04
    for times, room in ((1.0, 0.02), (2.0, 0.01), (3.0, 0.01)):
        assert abs(coverage(error, sigma, times) - expected_coverage(times)) < room


def test_hoeffding_is_exceeded_less_often_than_it_says() -> None:
    found, step = grouped(WEIGHT, 4, 64, False)
    linear = RoundedLinear(quantized=found, inputs=TOKENS, rounding=Rounding.uniform(step))
    error = (TOKENS @ (found - WEIGHT).T).abs()
    for failure in (0.5, 0.1, 0.01):
        assert float((error > linear.hoeffding(failure)).float().mean()) <= failure


FAULTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "scale +10 %": lambda found, step: found * 1.1,
    "clipped to 0.8": lambda found, step: found.clamp(-0.8 * 7 * step, 0.8 * 7 * step),
    "zero point +1": lambda found, step: found + step,
    "zero point +1 in a group": lambda found, step: torch.cat([found[:, :64] + step[:, :64], found[:, 64:]], 1),
    "scales rolled a group": lambda found, step: found / step * step.roll(64, 1) * 1.0,
    "nibbles swapped": lambda found, step: found.reshape(512, -1, 2).flip(-1).reshape(found.shape),
}
"""research notes on z: those that move the coverage of a whole module."""


@pytest.mark.parametrize("name", FAULTS)
def test_coverage_leaves_its_place_for_faults(name: str) -> None:
    generator = torch.Generator().manual_seed(9)
    spread = WEIGHT * torch.randn(12, generator=generator).mul(0.3).exp().repeat_interleave(64)
    found, step = grouped(spread, 4, 64, True)
    sigma = RoundedLinear(quantized=found, inputs=TOKENS, rounding=Rounding.uniform(step)).sigma()
    assert abs(coverage(TOKENS @ (found - spread).T, sigma) - 0.954) < 0.01
    assert coverage(TOKENS @ (FAULTS[name](found, step) - spread).T, sigma) < 0.93


def test_one_bad_row_shows_in_its_own_z_only() -> None:
    found, step = grouped(WEIGHT, 4, 64, False)
    found[100] = found[101]
    sigma = RoundedLinear(quantized=found, inputs=TOKENS, rounding=Rounding.uniform(step)).sigma()
    rows = z_by_row(TOKENS @ (found - WEIGHT).T, sigma)
    assert int(rows.argmax()) == 100 and float(rows[100]) > 8 > 2 > float(rows.median())


def test_uneven_gaps() -> None:
    values = torch.linspace(-0.25, 0.5, 10_001)  # all that round to a value with these gaps
    rounding = Rounding.between(torch.tensor(0.5), torch.tensor(1.0))
    assert math.isclose(float(rounding.variance), float(values.square().mean()), rel_tol=1e-3)
    assert float(rounding.reach) == 0.5
    assert float(rounding.scaled(torch.tensor(-2.0)).reach) == 1.0
    assert math.isclose(float(Rounding.uniform(torch.tensor(2.0)).variance), 4 / 12, rel_tol=1e-6)
