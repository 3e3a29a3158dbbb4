"""Residual-path compensation: the rows of o_proj and down_proj are rescaled so that the block's output keeps its size.

    r_c = std of output c in the reference / std of output c as rounded = sqrt( (w G w^T) / (v G v^T) )

Closed form from the second moments of the inputs, one factor an output channel, multiplied into the scales of that row.
Rounding errors that are independent of the weights add to the size of an output; the residual stream takes every block's
sum, so a size that is off by a part is off in all later layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.quantize.grid import Grid, IntGrid, stored_scale

WIDEST = 1.25
"""A row that lost or gained more than this is not a matter of its size."""


def compensated_grid(weight: Tensor, gram: Tensor, grid: Grid, values: Tensor, dtype: torch.dtype) -> Grid:
    """The grid under compensated scales, which the same codes then have."""
    if not isinstance(grid, IntGrid):
        return grid
    wanted = ((weight @ gram) * weight).sum(1)
    found = ((values @ gram) * values).sum(1)
    usable = (wanted > 0) & (found > 0)
    factor = torch.where(usable, (wanted / torch.where(usable, found, torch.ones_like(found))).sqrt(), 1.0)
    factor = factor.clamp(1 / WIDEST, WIDEST)
    return grid.with_scales(stored_scale(grid.scales * factor[:, None], dtype))
