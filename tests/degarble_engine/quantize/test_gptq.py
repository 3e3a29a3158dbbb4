"""GPTQ against its definition, against plain rounding, and on inputs that leave the Hessian singular."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.damping import damped
from degarble_engine.quantize.input_statistics import BLOCK, InputStatistics
from degarble_engine.quantize.interface import MatrixTask
from degarble_engine.quantize.methods.gptq import ROUNDS, Gptq, compensated, inverse_factor
from degarble_engine.quantize.recipe import Recipe
from degarble_engine.quantize.refine import Problem, descended, fitted_scales
from degarble_engine.quantize.scheme import parse_scheme

SCHEME = parse_scheme("W4A16_ASYM", 32)


def correlated(tokens: int, size: int, seed: int = 0) -> Tensor:
    """Inputs whose channels are alike and unequal in size, as those of a model are."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(size, size, generator=generator) / size**0.5 + torch.eye(size)
    return (torch.randn(tokens, size, generator=generator) @ mixing) * torch.logspace(-1, 0.5, size)


def weight_of(rows: int, size: int) -> Tensor:
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(5)) * 0.1


def statistics_of(inputs: Tensor, reference: Tensor | None = None) -> InputStatistics:
    found = InputStatistics.empty(inputs.shape[1], has_reference=reference is not None)
    for part in range(0, inputs.shape[0], 50):
        own = None if reference is None else reference[part : part + 50]
        found.add(inputs[part : part + 50], own)
    return found


def compensated_reference(weight: Tensor, hessian: Tensor, grid: object, order: Tensor) -> Tensor:
    """The algorithm as its paper states it: the inverse Hessian shrinks by one column at a time, in fp64."""
    left, inverse = weight.double().clone(), torch.linalg.inv(hessian.double())
    alive = list(order.tolist())
    for column in order.tolist():
        rounded = grid.round(left[:, column : column + 1].float(), torch.tensor([column])).double()  # type: ignore[attr-defined]
        error = (left[:, column : column + 1] - rounded) / inverse[column, column]
        alive.remove(column)
        left[:, alive] -= error @ inverse[column, alive][None]
        left[:, column : column + 1] = rounded
        inverse -= inverse[:, column : column + 1] @ inverse[column : column + 1] / inverse[column, column]
    return left.float()


def test_blocks_give_what_the_definition_gives() -> None:
    weight, inputs = weight_of(24, 160), correlated(500, 160)
    hessian = damped(inputs.T @ inputs / 500).hessian.float()
    grid = search_grid(weight, SCHEME, torch.float32)
    order = torch.argsort(hessian.diagonal(), descending=True, stable=True)
    found, wanted = compensated(weight, hessian, grid, order), compensated_reference(weight, hessian, grid, order)
    assert float((found != wanted).float().mean()) < 0.02  # a value between two codes may fall on either side
    problem = Problem.of(weight, hessian)
    loss = [float(problem.fit(grid, one).losses.sum()) for one in (found, wanted)]
    assert loss[0] < 1.02 * loss[1]


def test_the_factor_is_that_of_the_inverse() -> None:
    inputs = correlated(300, 96)
    hessian = damped(inputs.T @ inputs / 300).hessian
    upper = inverse_factor(hessian).double()
    assert torch.equal(upper, upper.triu())
    assert torch.allclose(upper.T @ upper @ hessian, torch.eye(96, dtype=torch.float64), atol=1e-3)


def test_it_halves_the_error_of_rounding() -> None:
    weight, inputs = weight_of(64, 160), correlated(2000, 160)
    task = MatrixTask(weight=weight, scheme=SCHEME, scale_dtype=torch.bfloat16, statistics=statistics_of(inputs))
    found = Gptq().round(task)
    plain = search_grid(weight, SCHEME, torch.bfloat16).round_all(weight)
    error = [float((inputs @ (one - weight).T).square().sum()) for one in (found.values, plain)]
    assert error[0] < 0.5 * error[1]
    assert torch.equal(found.grid.decode(found.grid.encode(found.values)), found.values)
    assert bool((found.losses <= found.plain_losses * 1.0001).all())


@pytest.mark.parametrize("change", ["rounds", "act_order"])
def test_each_part_pays(change: str) -> None:
    weight, inputs = weight_of(64, 160), correlated(2000, 160)
    task = MatrixTask(weight=weight, scheme=SCHEME, scale_dtype=torch.float32, statistics=statistics_of(inputs))
    full = Gptq().round(task)
    less = (Gptq(rounds=0) if change == "rounds" else Gptq(act_order=False)).round(task)
    assert float(full.losses.sum()) < float(less.losses.sum())


def test_descent_and_scales_never_raise_the_loss_of_a_row() -> None:
    weight, inputs = weight_of(40, 96), correlated(400, 96)
    hessian = damped(inputs.T @ inputs / 400).hessian.float()
    grid = search_grid(weight, SCHEME, torch.bfloat16)
    values = grid.round_all(weight)
    problem = Problem.of(weight, hessian)
    before = problem.fit(grid, values)
    lower = descended(before)
    fitted = fitted_scales(lower, grid, torch.bfloat16)  # type: ignore[arg-type]
    assert bool((lower.losses <= before.losses).all()) and bool((fitted.losses <= lower.losses).all())
    assert float(fitted.losses.sum()) < float(lower.losses.sum()) < float(before.losses.sum())
    assert torch.equal(fitted.grid.round_all(fitted.values), fitted.values)
    assert torch.equal(fitted.grid.scales.to(torch.bfloat16).float(), fitted.grid.scales)
    for one in (lower, fitted):  # the gradient that was carried along is that of the values
        off = one.values - weight
        assert torch.allclose(one.gradient, off @ hessian, rtol=1e-3, atol=1e-4)
        assert torch.allclose(one.losses, ((off @ hessian) * off).sum(1), rtol=1e-3)


def test_inherited_error_is_corrected() -> None:
    """Inputs drifted by a linear map: the output on them comes nearer to the reference's than the best rounding of W."""
    weight, reference = weight_of(48, 96), correlated(3000, 96)
    drift = torch.eye(96) + 0.15 * torch.randn(96, 96, generator=torch.Generator().manual_seed(9)) / 96**0.5
    inputs = reference @ drift
    statistics = statistics_of(inputs, reference)
    task = MatrixTask(weight=weight, scheme=SCHEME, scale_dtype=torch.float32, statistics=statistics)
    wanted = reference @ weight.T
    error = [
        float((inputs @ Gptq(strength=strength).round(task).values.T - wanted).square().sum())
        for strength in (0.0, 1.0)
    ]
    assert error[1] < 0.7 * error[0]


def test_a_singular_hessian_is_damped_and_a_dead_one_told() -> None:
    inputs = torch.zeros(64, 32)
    inputs[:, 0] = 1e-3
    task = MatrixTask(weight=weight_of(8, 32), scheme=SCHEME, scale_dtype=torch.float32)
    task = MatrixTask(weight=task.weight, scheme=SCHEME, scale_dtype=torch.float32, statistics=statistics_of(inputs))
    found = Gptq().round(task)
    assert bool(torch.isfinite(found.values).all())
    nobody = MatrixTask(weight=weight_of(8, 32), scheme=SCHEME, scale_dtype=torch.float32)
    assert Gptq().round(nobody).notes == ["no token reached it: rounded to nearest"]


def test_more_damping_is_said() -> None:
    gram = torch.eye(8)
    gram[0, 1] = gram[1, 0] = 1.2  # not positive definite by more than the first ridge
    found = damped(gram)
    assert found.share > 0.01 and found.note is not None and f"{found.share:g}" in found.note
    assert torch.allclose(found.factor @ found.factor.T, found.hessian)
    gram[2, 2] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        damped(gram)


@pytest.mark.parametrize("size", [32, BLOCK, BLOCK + 44])
def test_the_sums_do_not_depend_on_the_cut(size: int) -> None:
    inputs, reference = correlated(300, size), correlated(300, size, 1)
    found = statistics_of(inputs, reference)
    assert found.tokens == 300
    assert torch.equal(found.gram, found.gram.T)
    assert torch.allclose(found.gram, inputs.T @ inputs, rtol=1e-4, atol=1e-2)
    assert found.drift is not None
    assert torch.allclose(found.drift, (reference - inputs).T @ inputs, rtol=1e-3, atol=1e-2)


def test_polishing_can_be_asked_for() -> None:
    found = [Recipe(method="gptq", polish=rounds).algorithm() for rounds in (None, 0, 3)]
    assert [one.rounds for one in found if isinstance(one, Gptq)] == [ROUNDS, 0, 3]
