"""Sums made in blocks of rows against the same formulas on whole matrices; no row may be left out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.attribution import row_parts as blocks
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.measures import measure
from degarble_engine.attribution.rounding_step import reference_steps
from degarble_engine.attribution.row_sums import MAX_JUDGED_TOKENS, judged_tokens, pair_sums
from degarble_engine.attribution.stored_rounding import pair_rounding
from degarble_engine.numerics.precision import FP32
from tests.conftest import unpacked_golden

LEAF = "model.layers.0.mlp.down_proj"
FORMS = ("auto-round-awq-w4-asym-g128", "llm-compressor-fp8-block", "modelopt-nvfp4", "modelopt-int4-awq", "base-bf16")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks in matrices as small as these."""
    monkeypatch.setattr(blocks.row_parts, "__defaults__", (1 << 10, None))


def pair(form: str) -> LinearPair:
    """One stored linear beside the original, with a gain of both signs and a fold of its rows."""
    stored = Evidence(open_target(unpacked_golden() / form), Settings()).get("modules").by_canonical[LEAF]
    plain = Evidence(open_target(unpacked_golden() / "base-bf16"), Settings()).get("modules").by_canonical[LEAF]
    wanted = torch.from_numpy(plain.dequantize()).float()
    generator = torch.Generator().manual_seed(3)
    gain = torch.randn(wanted.shape[1], generator=generator)
    return LinearPair(
        name="mlp.down_proj", parameter=f"{LEAF}.weight", stored=stored, expert=None, rows=None, reference=wanted,
        candidate=torch.from_numpy(stored.dequantize()).float(), reference_bias=None,
        candidate_bias=torch.randn(wanted.shape[0], generator=generator), reference_gain=gain, candidate_gain=gain * 1.01,
        row_fold=1 + torch.rand(wanted.shape[0], generator=generator),
        input=torch.randn(40, wanted.shape[1], generator=generator),
    )  # fmt: skip


def close(found: Tensor, wanted: Tensor) -> bool:
    return bool(torch.allclose(found, wanted, rtol=2e-5, atol=1e-6 * float(wanted.abs().max())))


@pytest.mark.parametrize("form", FORMS)
def test_blocks_give_what_whole_matrices_give(form: str) -> None:
    one = pair(form)
    known = pair_rounding(one, FP32, False)
    assert known is not None
    sums = pair_sums(one, known)
    wanted, found, whole = one.folded_reference(), one.folded_candidate(), known.rounding()
    delta, bias = found - wanted, one.bias_difference()
    assert bias is not None and close(sums.error.T, one.input @ delta.T + bias)
    assert sums.variance is not None and close(sums.variance.T, one.input.square() @ whole.variance.T)
    assert close(sums.output.T, one.input @ wanted.T)
    rows = sums.rows
    assert rows.expected is not None and close(rows.expected, whole.variance.sum(1))
    assert close(rows.squared, delta.square().sum(1)) and close(rows.product, (found * wanted).sum(1))
    size = 64 if found.shape[1] % 64 == 0 else found.shape[1]
    peaks = found.abs().reshape(found.shape[0], -1, size).amax(-1).repeat_interleave(size, dim=1)
    inside = wanted.abs() <= 0.8 * peaks
    assert close(rows.inner_squared, (delta * inside).square().sum(1))
    assert close(rows.inner_energy, (wanted * inside).square().sum(1))
    assert close(rows.inner_share, inside.float().mean(1))
    floor = reference_steps(wanted)
    assert close(rows.floor, floor.square().sum(1) / 12)
    assert close(rows.inner_floor, (floor * inside).square().sum(1) / 12)
    signs = one.scaled(torch.ones_like(wanted)).sign()
    assert close(rows.floor_shift, (delta * signs / floor.clamp_min(1e-30)).clamp(-50, 50).sum(1))
    if rows.shift is not None:
        assert close(rows.shift, (delta * signs / (12 * whole.variance).sqrt().clamp_min(1e-30)).clamp(-50, 50).sum(1))


def test_many_tokens_are_judged_at_equal_distances_and_the_first_always() -> None:
    assert judged_tokens(0).tolist() == [] and judged_tokens(5).tolist() == [0, 1, 2, 3, 4]
    many = judged_tokens(5000)
    assert len(many.unique()) == MAX_JUDGED_TOKENS and int(many[0]) == 0 and int(many[-1]) == 4999


@pytest.mark.parametrize("num_tokens", [40, 3 * MAX_JUDGED_TOKENS])
def test_one_bad_row_of_all_is_found_in_the_last_block(num_tokens: int) -> None:
    one = pair("auto-round-awq-w4-asym-g128")
    one.input = torch.randn(num_tokens, one.reference.shape[1], generator=torch.Generator().manual_seed(5))
    one.candidate_bias = None
    one.candidate_gain, one.row_fold = one.reference_gain, None
    healthy = measure(one, 0, False, None)
    last = one.candidate.shape[0] - 1
    one.candidate[last] = one.candidate[last].roll(1)
    found = measure(one, 0, False, None)
    assert found.row_z_at == last and found.row_slope_at == last
    assert (found.row_z or 0) > 4 * (healthy.row_z or 0) and (found.row_weight_z or 0) > 4 * (healthy.row_weight_z or 0)
    assert abs(found.relative - healthy.relative) < 0.5


def test_values_that_are_not_finite_are_named_and_taken_as_zero() -> None:
    one = pair("modelopt-nvfp4")
    one.candidate[3, 5] = float("nan")
    one.candidate[4, 6] = float("inf")
    sums = pair_sums(one, pair_rounding(one, FP32, False))
    assert [int(row) for row in (~sums.rows.is_finite).nonzero()] == [3, 4]
    assert bool(torch.isfinite(sums.error).all()) and not measure(one, 0, False, None).finite
