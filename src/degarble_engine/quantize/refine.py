"""Polishing under the Hessian: codes to the scales by coordinate descent, scales to the codes by least squares.

The loss of row v against its target t is (v - t) H (v - t)^T. GPTQ passes once and never returns to a column. Here

    codes    v_j is moved to the grid value nearest to v_j - ((v - t) H)_j / H_jj, the exact minimum of the loss in
             that column with all others held; the pass is repeated. Blocks as in GPTQ: a block's gradient is kept up to
             date inside it, the rest of the matrix follows once a block by a product.
    scales   with codes c held, v = sum_g s_g c_g, and the best s of a row solves a small system of one equation a
             group: A_gh = c_g H_gh c_h^T, b_g = c_g (H t)_g. The solution is rounded to the stored dtype, and kept only
             where the row's loss falls.
    ranges   fitted scales leave groups whose codes reach neither end. Their scale shrinks until one does, and the codes
             descend again on the finer steps.

Papers: QuantEase (Behdin et al. 2023, arXiv:2309.01885) for cyclic descent; CDQuant (Nair and Suggala 2024,
arXiv:2406.17542) shows what it adds to GPTQ's result.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from degarble_engine.quantize.grid import Grid, IntGrid, stored_scale

BLOCK = 64
RIDGE = 1e-6
CLOSINGS = 2
"""Times that ranges are closed. Readers, and `check` (WGT208), expect a group to reach an end of its range."""


def refined(fit: Fit, rounds: int, dtype: torch.dtype) -> Fit:
    """Fit scales and codes in turns, in which the loss of no row grows; then close the ranges that no code fills any more."""
    for _ in range(rounds):
        if isinstance(fit.grid, IntGrid):
            fit = fitted_scales(fit, fit.grid, dtype)
        fit = descended(fit)
    for _ in range(CLOSINGS if rounds and isinstance(fit.grid, IntGrid) else 0):
        fit = descended(descended(tightened(fit, dtype)))
    return fit


@dataclass(frozen=True, slots=True)
class Fit:
    """Values on a grid, and how far they are: the gradient is kept, since every loss follows from it."""

    problem: Problem
    grid: Grid
    values: Tensor  # [out, in]
    gradient: Tensor  # [out, in] (v - t) H

    @property
    def losses(self) -> Tensor:
        """Of every row. [out]"""
        return (self.gradient * (self.values - self.problem.target)).sum(1)

    def best_of(self, other: Fit) -> Fit:
        """Row by row the one with the smaller loss; both on one grid, or on integers with the same zero points."""
        better = (other.losses < self.losses)[:, None]
        grid = self.grid
        if isinstance(grid, IntGrid) and isinstance(other.grid, IntGrid):
            grid = grid.with_scales(torch.where(better, other.grid.scales, grid.scales))
        return Fit(
            self.problem,
            grid,
            torch.where(better, other.values, self.values),
            torch.where(better, other.gradient, self.gradient),
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """Minimise (v - t) H (v - t)^T of every row."""

    target: Tensor  # [out, in]
    hessian: Tensor  # [in, in] fp32, symmetric
    pull: Tensor  # [out, in] t H

    @classmethod
    def of(cls, target: Tensor, hessian: Tensor) -> Problem:
        """With the product that all steps need."""
        return cls(target, hessian, target @ hessian)

    @property
    def norms(self) -> Tensor:
        """The loss of zeros. [out]"""
        return (self.pull * self.target).sum(1)

    def fit(self, grid: Grid, values: Tensor) -> Fit:
        """Where some values are."""
        return Fit(self, grid, values, values @ self.hessian - self.pull)


def descended(fit: Fit) -> Fit:
    """One cyclic pass over all columns, which are the lines of transposed copies inside."""
    hessian = fit.problem.hessian
    now, gradient = fit.values.T.contiguous(), fit.gradient.T.contiguous()  # [in, out]
    diagonal, round_line = hessian.diagonal().tolist(), fit.grid.line(torch.arange(now.shape[0]))
    for start in range(0, now.shape[0], BLOCK):
        stop = min(start + BLOCK, now.shape[0])
        inner, local = hessian[start:stop, start:stop], gradient[start:stop].clone()
        before = now[start:stop].clone()
        for at in range(stop - start):
            line = now[start + at]
            moved = round_line(start + at, line - local[at] / diagonal[start + at])
            local.addr_(inner[at], moved - line)
            now[start + at] = moved
        gradient.addmm_(hessian[:, start:stop], now[start:stop] - before)
    return fit.best_of(Fit(fit.problem, fit.grid, now.T.contiguous(), gradient.T.contiguous()))


def fitted_scales(fit: Fit, grid: IntGrid, dtype: torch.dtype) -> Fit:
    """The least-squares scales of every row for its codes."""
    problem, size = fit.problem, grid.group_size
    out, columns = fit.values.shape
    groups = columns // size
    steps = grid.steps(fit.values, torch.arange(columns))
    system = torch.empty(out, groups, groups)
    for group in range(groups):
        part = slice(group * size, (group + 1) * size)
        reach = steps[:, part] @ problem.hessian[part]  # [out, in]
        system[:, group] = reach.mul_(steps).reshape(out, groups, size).sum(2)
    wanted = (problem.pull * steps).reshape(out, groups, size).sum(2)
    diagonal = system.diagonal(dim1=1, dim2=2)
    diagonal.add_(RIDGE * diagonal.mean(1, keepdim=True) + torch.finfo(torch.float32).tiny)
    solved, failed = torch.linalg.solve_ex(system.double(), wanted.double()[..., None])
    scales = solved[..., 0].float()
    usable = (failed == 0) & torch.isfinite(scales).all(1) & (scales > 0).all(1)
    new = grid.with_scales(torch.where(usable[:, None], stored_scale(scales, dtype), grid.scales))
    return fit.best_of(problem.fit(new, steps * new.scales.repeat_interleave(size, 1)))


def tightened(fit: Fit, dtype: torch.dtype) -> Fit:
    """Groups whose codes reach no end any more get the smaller scale that makes them: the same range in finer steps.

    Values move by half a step at most, and have the passes that follow to find better ones.
    """
    grid = fit.grid
    assert isinstance(grid, IntGrid)
    out, columns = fit.values.shape
    steps = grid.steps(fit.values, torch.arange(columns)).reshape(out, -1, grid.group_size)
    below, above = grid.zeros, grid.largest - grid.zeros
    reach = torch.maximum(steps.amax(-1) / above.clamp_min(1), -steps.amin(-1) / below.clamp_min(1))
    is_slack = (reach < 1) & (reach > 0)
    new = grid.with_scales(torch.where(is_slack, stored_scale(grid.scales * reach, dtype), grid.scales))
    return fit.problem.fit(new, new.round_all(fit.values))
