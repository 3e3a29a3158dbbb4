"""Polishing under the Hessian: codes to the scales by coordinate descent, scales to the codes by least squares.

The loss of row v against its target t is (v - t) H (v - t)^T. GPTQ passes once and never returns to a column. Here

    codes    v_j is moved to the grid value nearest to v_j - ((v - t) H)_j / H_jj, the exact minimum of the loss in
             that column with all others held; the pass is repeated. Blocks as in GPTQ: a block's gradient is kept up to
             date inside it, the rest of the matrix follows once a block by a product.
    scales   with codes c held, v = sum_g s_g c_g, and the best s of a row solves a small system of one equation a
             group: A_gh = c_g H_gh c_h^T, b_g = c_g (H t)_g. The solution is rounded to the stored dtype, and kept only
             where the row's loss falls.

Papers: QuantEase (Behdin et al. 2023, arXiv:2309.01885) for cyclic descent; CDQuant (Nair and Suggala 2024,
arXiv:2406.17542) shows what it adds to GPTQ's result.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.quantize.grid import Grid, IntGrid, stored_scale

BLOCK = 64
RIDGE = 1e-6


def refined(
    target: Tensor, hessian: Tensor, grid: Grid, values: Tensor, rounds: int, dtype: torch.dtype
) -> tuple[Grid, Tensor]:
    """Alternate; the loss of no row ever grows."""
    for _ in range(rounds):
        if isinstance(grid, IntGrid):
            grid, values = fitted_scales(target, hessian, grid, values, dtype)
        values = descended(target, hessian, grid, values)
    return grid, values


def losses(target: Tensor, hessian: Tensor, values: Tensor) -> Tensor:
    """(v - t) H (v - t)^T of every row. [out]"""
    off = values - target
    return ((off @ hessian) * off).sum(1)


def descended(target: Tensor, hessian: Tensor, grid: Grid, values: Tensor) -> Tensor:
    """One cyclic pass over all columns, which are the lines of transposed copies inside."""
    now = values.T.contiguous()  # [in, out]
    gradient = hessian @ (now - target.T)
    diagonal, round_line = hessian.diagonal().tolist(), grid.line(torch.arange(now.shape[0]))
    for start in range(0, now.shape[0], BLOCK):
        stop = min(start + BLOCK, now.shape[0])
        inner, local = hessian[start:stop, start:stop], gradient[start:stop].clone()
        before = now[start:stop].clone()
        for at in range(stop - start):
            line = now[start + at]
            moved = round_line(start + at, line - local[at] / diagonal[start + at])
            local.addr_(inner[at], moved - line)
            now[start + at] = moved
        gradient[stop:].addmm_(hessian[stop:, start:stop], now[start:stop] - before)
    result = now.T.contiguous()
    better = losses(target, hessian, result) < losses(target, hessian, values)
    return torch.where(better[:, None], result, values)


def fitted_scales(
    target: Tensor, hessian: Tensor, grid: IntGrid, values: Tensor, dtype: torch.dtype
) -> tuple[IntGrid, Tensor]:
    """The least-squares scales of every row for its codes."""
    out, size = values.shape[0], grid.group_size
    steps = grid.steps(values, torch.arange(values.shape[1]))
    groups = steps.shape[1] // size
    system = torch.empty(out, groups, groups)
    for group in range(groups):
        part = slice(group * size, (group + 1) * size)
        reach = steps[:, part] @ hessian[part]  # [out, in]
        system[:, group] = (reach * steps).reshape(out, groups, size).sum(2)
    wanted = ((target @ hessian) * steps).reshape(out, groups, size).sum(2)
    system.diagonal(dim1=1, dim2=2).add_(RIDGE * system.diagonal(dim1=1, dim2=2).mean(1, keepdim=True) + 1e-30)
    solved, failed = torch.linalg.solve_ex(system.double(), wanted.double()[..., None])
    scales = solved[..., 0].float()
    usable = (failed == 0) & torch.isfinite(scales).all(1) & (scales > 0).all(1)
    new = grid.with_scales(torch.where(usable[:, None], stored_scale(scales, dtype), grid.scales))
    tried = steps * new.scales.repeat_interleave(size, 1)
    better = losses(target, hessian, tried) < losses(target, hessian, values)
    kept = grid.with_scales(torch.where(better[:, None], new.scales, grid.scales))
    return kept, torch.where(better[:, None], tried, values)
