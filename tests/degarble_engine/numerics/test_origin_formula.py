"""The printed formula fails where it was said to fail; the corrected one holds whatever the numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from degarble_engine.numerics.origin_formula import (
    CLAIMED_SHARE,
    Reading,
    Widths,
    corrected_bound,
    printed_bound,
    try_formula,
)

W8A4 = Widths(weight=8, activation=4)
ENTRIES = Reading.ENTRIES
UNSIGNED = Widths(weight=8, activation=4, signed=False)


def test_as_printed_it_lacks_the_inner_dimension() -> None:
    small, large = try_formula(64, UNSIGNED), try_formula(4096, UNSIGNED)
    assert small.excess[Reading.ENTRIES] > 1.5 and large.excess[Reading.ENTRIES] > 12
    assert large.inside[Reading.ENTRIES] < 0.3 < CLAIMED_SHARE < small.inside[Reading.ENTRIES]


def test_levels_on_both_sides_of_zero_make_it_worse() -> None:
    for inner in (64, 1024):
        assert (
            try_formula(inner, W8A4).excess[Reading.ENTRIES]
            > 1.5 * try_formula(inner, UNSIGNED).excess[Reading.ENTRIES]
        )


def test_row_sums_of_weights_alone_fail_without_activations_to_round() -> None:
    trial = try_formula(1024, Widths(weight=8, activation=16))
    assert trial.excess[Reading.WEIGHT_ROWS] > 5 and trial.excess[Reading.ALL_ROWS] < 1


def test_with_all_row_sums_the_product_of_the_roundings_is_missing() -> None:
    """One bit short of a bound: both roundings at their worst, and nothing else in the inputs."""
    widths = Widths(weight=2, activation=2)
    inner = 4096
    weight, inputs = torch.full((1, inner), 0.4999), torch.zeros(1, inner)
    weight[0, 0], inputs[0, 0] = 1.0, 1.0
    inputs[0, 1:] = 1e-6
    error = float((widths.round_inputs(inputs) @ widths.round_weight(weight).T - inputs @ weight.T).abs().max())
    assert error <= float(corrected_bound(weight, inputs, widths).max())
    product = inner * widths.weight_delta(weight) / 2 * widths.activation_reach(inputs)
    assert product > 0.3 * printed_bound(weight, inputs, widths, Reading.ALL_ROWS)


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    inner=st.integers(1, 200),
    weight_bits=st.integers(2, 16),
    activation_bits=st.integers(2, 16),
    signed=st.booleans(),
    outlier=st.sampled_from([1.0, 100.0]),
)
def test_the_corrected_form_is_never_broken(
    seed: int, inner: int, weight_bits: int, activation_bits: int, signed: bool, outlier: float
) -> None:
    widths = Widths(weight=weight_bits, activation=activation_bits, signed=signed)
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(5, inner, generator=generator, dtype=torch.float64)
    inputs = torch.randn(6, inner, generator=generator, dtype=torch.float64)
    inputs[:, 0] *= outlier
    inputs = inputs if signed else inputs.abs()
    error = (widths.round_inputs(inputs) @ widths.round_weight(weight).T - inputs @ weight.T).abs()
    bound = corrected_bound(weight, inputs, widths)
    assert bool((error <= bound * (1 + 1e-9) + 1e-12).all())


@pytest.mark.parametrize("reading", Reading)
def test_nothing_rounded_bounds_nothing(reading: Reading) -> None:
    assert printed_bound(torch.eye(3), torch.eye(3), Widths(weight=16, activation=16), reading) == 0.0


def test_eight_and_four_bits_are_the_printed_numbers() -> None:
    weight, inputs = torch.tensor([[127.0, 1.0]]), torch.tensor([[15.0, -1.0]])
    assert W8A4.weight_delta(weight) == 1.0 and W8A4.activation_delta(inputs) == 1.0
    assert printed_bound(weight, inputs, W8A4, Reading.ENTRIES) == 1.0 * 15.0 + 1.0 * 127.0


def test_the_page_shows_what_the_code_computes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "explanation" / "error-bounds.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.match(r"\| \d+ \|", line)]
    assert len(rows) == 5
    for line in rows:
        inner, *cells = (float(cell.strip(" %")) for cell in line.strip("|").split("|"))
        unsigned, signed = try_formula(int(inner), UNSIGNED), try_formula(int(inner), W8A4)
        wanted = [value for one in (unsigned, signed) for value in (one.excess[ENTRIES], 100 * one.inside[ENTRIES])]
        assert cells == pytest.approx([*wanted, signed.corrected], rel=0.02, abs=0.06), line
