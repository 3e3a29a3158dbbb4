"""GPTQ: column after column is rounded, and what is left to round takes up the error.

With H = X X^T + ridge and U the upper Cholesky factor of H^-1, rounding column i of row w costs the least if

    e = (w_i - q_i) / U_ii          w_j -= e U_ij   for j > i

Columns come in the order of falling H_ii (`act_order`), so that those that matter most are rounded first, with most
columns left to compensate. The grid of each group is found beforehand on unrounded weights ("static groups"), so every
code stays in the group of its position and no g_idx is stored. Columns are taken in blocks: inside a block one at a
time, the rest of the matrix once a block by a product of matrices. All rows, of all linears that read one input, go side
by side.

Then the result is polished under the same H, which GPTQ's one pass does not: scales are fitted to the codes, codes to
the scales (refine.py), both only where the error falls.

Papers: Frantar et al. 2022, arXiv:2210.17323; error carried from layer to layer: target.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from degarble_engine.quantize.clip_search import search_grid
from degarble_engine.quantize.damping import FIRST, damped
from degarble_engine.quantize.grid import Grid
from degarble_engine.quantize.interface import MatrixTask, Method, Rounded
from degarble_engine.quantize.refine import Problem, refined
from degarble_engine.quantize.target import corrected

BLOCK = 64
STRENGTH = 1.0
"""Of the correction of inherited error."""
ROUNDS = 2
"""Of refinement."""
MANY_WORSE = 0.1
"""Share of rows that plain rounding serves better, from which it is told; some are in every matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gptq(Method):
    """`--method gptq`."""

    name: ClassVar[str] = "gptq"
    needs_inputs: ClassVar[bool] = True
    orders_columns: ClassVar[bool] = True
    damping: float = FIRST
    act_order: bool = True
    strength: float = STRENGTH
    rounds: int = ROUNDS

    def round(self, task: MatrixTask) -> Rounded:
        """See Method.round. Without any tokens there is nothing to compensate by: rounded to nearest, and said."""
        statistics = task.statistics
        if statistics is None or not statistics.tokens:
            grid = search_grid(task.weight, task.scheme, task.scale_dtype)
            return Rounded.to_nearest(task.weight, grid, ["no token reached it: rounded to nearest"])
        ridge = damped(statistics.gram / statistics.tokens, self.damping)
        target = self._target(task, ridge.factor)
        hessian = ridge.hessian.float()
        grid = search_grid(target, task.scheme, task.scale_dtype, hessian.diagonal())
        problem = Problem.of(target, hessian)
        plain = problem.fit(grid, grid.round_all(target))
        passed = problem.fit(grid, compensated(target, hessian, grid, _order(hessian.diagonal(), self.act_order)))
        notes = [ridge.note] if ridge.note else []
        worse = int((passed.losses > plain.losses).sum())
        if worse > MANY_WORSE * task.weight.shape[0]:
            notes.append(f"{worse} rows were worse than rounded to nearest, and begun again from there")
        found = refined(passed.best_of(plain), self.rounds, task.scale_dtype)
        return Rounded(
            values=found.values,
            grid=found.grid,
            losses=found.losses,
            plain_losses=plain.losses,
            norms=problem.norms,
            notes=notes,
        )

    def _target(self, task: MatrixTask, factor: Tensor) -> Tensor:
        statistics = task.statistics
        assert statistics is not None
        scaled = factor * statistics.tokens**0.5
        return corrected(task.weight, statistics, scaled, self.strength)


def _order(diagonal: Tensor, act_order: bool) -> Tensor:
    if not act_order:
        return torch.arange(diagonal.shape[0])
    return torch.argsort(diagonal, descending=True, stable=True)


def inverse_factor(hessian: Tensor) -> Tensor:
    """Upper U with H^-1 = U^T U, without inverting H: of H backwards = L L^T, U is the inverse of L, backwards again."""
    lower = torch.linalg.cholesky(hessian.double().flip(0, 1))
    eye = torch.eye(hessian.shape[0], dtype=torch.float64)
    return torch.linalg.solve_triangular(lower, eye, upper=False).flip(0, 1).float()


def compensated(weight: Tensor, hessian: Tensor, grid: Grid, order: Tensor) -> Tensor:
    """The pass itself. [out, in] values on the grid; inside, columns are the lines of a transposed copy."""
    factor = inverse_factor(hessian[order][:, order])
    left = weight.T[order].contiguous()  # [in, out]
    values, round_line = torch.empty_like(left), grid.line(order)
    for start in range(0, left.shape[0], BLOCK):
        stop = min(start + BLOCK, left.shape[0])
        block, errors = left[start:stop], torch.empty(stop - start, left.shape[1])
        inner = factor[start:stop, start:stop]
        diagonal = inner.diagonal().tolist()
        for at in range(stop - start):
            values[start + at] = rounded = round_line(start + at, block[at])
            errors[at] = (block[at] - rounded).div_(diagonal[at])
            block[at + 1 :].addr_(inner[at, at + 1 :], errors[at], alpha=-1)
        left[stop:].addmm_(factor[start:stop, stop:].T, errors, alpha=-1)
    result = torch.empty_like(weight)
    result[:, order] = values.T
    return result
