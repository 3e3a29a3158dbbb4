"""A grid gives what readers give: codes and values are one another's inverse, for every form."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from degarble.errors import UsageError
from degarble.formats import affine, fp8, fp8_block
from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.grid import IntGrid
from degarble_engine.quantize.scheme import QuantScheme, parse_scheme

NAMES = ("W2A16", "W3A16", "W4A16", "W4A16_ASYM", "W8A16", "W8A8", "W5A6", "FP8", "FP8_BLOCK")


def matrix(rows: int = 48, columns: int = 160, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) * 0.05
    weight[3, 5], weight[7] = 1.5, 0.0
    return weight


def scheme_of(name: str) -> QuantScheme:
    is_grouped = name.endswith(("A16", "ASYM"))
    return parse_scheme(name, 32 if is_grouped else None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_values_survive_their_codes(name: str, dtype: torch.dtype) -> None:
    weight = matrix()
    grid = search_grid(weight, scheme_of(name), dtype)
    assert torch.equal(grid.scales.to(dtype).float(), grid.scales)
    values = grid.round_all(weight)
    codes = grid.encode(values)
    assert torch.equal(grid.decode(codes), values)
    assert torch.equal(grid.encode(grid.decode(codes)), codes)
    assert not grid.decode(codes)[7].any()


@pytest.mark.parametrize("symmetric", [True, False])
def test_integers_are_dequantised_as_the_formats_do(symmetric: bool) -> None:
    weight = matrix()
    grid = search_grid(weight, scheme_of("W4A16" if symmetric else "W4A16_ASYM"), torch.float16)
    assert isinstance(grid, IntGrid)
    codes = grid.encode(grid.round_all(weight))
    zeros = grid.zeros.numpy().astype(np.int32)
    wanted = affine.dequantize(codes.numpy(), grid.scales.numpy(), zeros, affine.group_of(160, 32))
    assert np.array_equal(wanted, grid.decode(codes).numpy())


def test_floats_are_those_of_the_formats() -> None:
    weight = matrix()
    for name, wanted in (
        ("FP8", fp8.quantize(weight.numpy(), strategy="channel")),
        ("FP8_BLOCK", fp8_block.quantize(weight.numpy())),
    ):
        grid = search_grid(weight, scheme_of(name), torch.float32)
        codes = grid.encode(grid.round_all(weight)).numpy()
        live = np.arange(48) != 7
        assert np.array_equal(codes[live], wanted[0][live])


def test_part_of_the_rows_is_the_same_grid() -> None:
    weight = matrix()
    for name in ("W4A16_ASYM", "FP8"):
        grid = search_grid(weight, scheme_of(name), torch.bfloat16)
        assert torch.equal(grid.of_rows(8, 20).round_all(weight[8:20]), grid.round_all(weight)[8:20])


@pytest.mark.parametrize("power", [2, 4])
@pytest.mark.parametrize("name", ["W4A16", "W4A16_ASYM", "W3A16"])
def test_the_search_beats_the_largest_weight(name: str, power: int) -> None:
    """Against the plain grid from the extremes, on weights with a heavy tail; no group may be worse in what is searched for:
    the square where inputs are known, the fourth power where they are not."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(64, 128, generator=generator) ** 3 * 0.02
    scheme = scheme_of(name)
    codes, scales, zeros = affine.quantize(
        weight.numpy(), scheme.num_bits, 32, symmetric=scheme.symmetric, scale_dtype=np.float32
    )
    plain = torch.from_numpy(affine.dequantize(codes, scales, zeros, affine.group_of(128, 32)))
    found = search_grid(weight, scheme, torch.float32, torch.ones(128) if power == 2 else None).round_all(weight)
    before = (plain - weight).pow(power).reshape(64, 4, 32).sum(2)
    after = (found - weight).pow(power).reshape(64, 4, 32).sum(2)
    assert float(after.sum()) < 0.95 * float(before.sum())
    assert bool((after <= before * 1.001).all())


def test_the_search_heeds_the_inputs() -> None:
    weight, importance = matrix(32, 64, 3), torch.ones(64)
    importance[:8] = 1000.0
    scheme = scheme_of("W3A16")
    even = search_grid(weight, scheme, torch.float32, torch.ones(64)).round_all(weight)
    weighted = search_grid(weight, scheme, torch.float32, importance).round_all(weight)
    error = [float(((one - weight) ** 2)[:, :8].sum()) for one in (even, weighted)]
    assert error[1] < error[0]


@pytest.mark.parametrize("name", ["", "W1A16", "W9A16", "W4A3", "W3A8", "W4A8_ASYM", "INT4", "W4A16_ASYMM", "FP4"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="--scheme"):
        parse_scheme(name)


def test_group_sizes() -> None:
    assert parse_scheme("w4a16").group_size == 128
    for name, size in (("W8A8", 64), ("FP8", 128), ("W4A16", 4)):
        with pytest.raises(UsageError, match="--group-size"):
            parse_scheme(name, size)
