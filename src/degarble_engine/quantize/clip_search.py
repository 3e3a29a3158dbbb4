"""The grid of each group by search: clip where the error is least, instead of keeping the largest weight whole.

    min over (low, high) of  sum_i h_i |w_i - round(w_i)|^p      h_i: the mean square of input i, and p = 2
                                                                 h_i = 1 where no input is known, and p = 4

Without inputs the square is the wrong measure: it clips the large weights of a group for the sake of many small ones, and
it is the large ones whose inputs matter. On SmolLM2 (groups of 64, KL in nats, docs/log.md) 4 bits with zero points give
0.314 by the plain range, 0.368 by p = 2, 0.325 by 3, 0.305 by 4; without zero points 0.478, 0.432, - and 0.403 (5: 0.403).

One outlier of a group of 64 stretches the step of the other 63. Both ends of an asymmetric range shrink on their own, so
the zero point is searched, too; the symmetric range has one end. The scale is then refitted to the codes it led to,

    s = sum h w c / sum h c^2          c = code - zero

which is the least-squares scale for those codes, and rounded again; a step that does not lower the error is left out
(scales are rounded to their stored dtype on the way). For p = 4 there is no such formula, and no refit.

Papers: OMSE (Choukroun et al. 2019, arXiv:1902.06822) for the search by squared error, LSQ-style refits as in
HQQ/AutoGPTQ's `mse` option (whose exponent is 2.4); the weighting by inputs is OBS's diagonal (Frantar et al. 2022,
arXiv:2208.11580).
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from degarble_engine.quantize.fp4_grid import Fp4Grid, fp4_grid
from degarble_engine.quantize.grid import E4M3_MAX, FloatGrid, Grid, IntGrid, stored_scale
from degarble_engine.quantize.scheme import QuantScheme

FINE = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.62, 0.54)
"""What is left of the range, where one end is searched."""
COARSE = (1.0, 0.87, 0.74, 0.61)
"""The same for each of two ends, all pairs; then pairs a step of NEAR around the best."""
NEAR = 0.065
REFITS = 3
ROWS_ELEMENTS = 1 << 17
"""Weights searched together: temporaries stay in the processor's cache, which is several times as fast."""


def search_grid(weight: Tensor, scheme: QuantScheme, dtype: torch.dtype, importance: Tensor | None = None) -> Grid:
    """The best grid for a matrix [out, in]; `importance` [in] weighs the inputs."""
    if scheme.type == "float":
        return _float_grid(weight, scheme, dtype, importance)
    size = scheme.group_of(weight.shape[1])
    grouped = weight.reshape(weight.shape[0], -1, size)
    weighting = None
    if importance is not None:
        by_group = importance.float().reshape(-1, size)
        weighting = by_group / by_group.mean(-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    found = []
    for rows in grouped.split(max(1, ROWS_ELEMENTS // weight.shape[1])):
        search = _Search(rows, weighting, scheme, dtype)
        found.append(search.symmetric() if scheme.symmetric else search.asymmetric())
    scales, zeros = (torch.cat(parts) for parts in zip(*found, strict=True))
    return IntGrid(scales=scales, zeros=zeros, num_bits=scheme.num_bits, group_size=size)


def plain_grid(weight: Tensor, scheme: QuantScheme, dtype: torch.dtype) -> Grid:
    """The grid from the extremes, unsearched: thirty times as fast, for comparing scales with one another."""
    if scheme.type == "float":
        return _float_grid(weight, scheme, dtype)
    size, limit = scheme.group_of(weight.shape[1]), (1 << scheme.num_bits) - 1
    grouped = weight.reshape(weight.shape[0], -1, size)
    low, high = grouped.amin(-1).clamp_max(0), grouped.amax(-1).clamp_min(0)
    if scheme.symmetric:
        high = torch.maximum(high, -low)
        low = -high
    scales = stored_scale((high - low) / limit, dtype)
    middle = torch.full_like(low, float((limit + 1) // 2))
    zeros = middle if scheme.symmetric else torch.round(-low / scales).clamp_(scheme.least_zero, limit)
    return IntGrid(scales=scales, zeros=zeros, num_bits=scheme.num_bits, group_size=size)


def _float_grid(
    weight: Tensor, scheme: QuantScheme, dtype: torch.dtype, importance: Tensor | None = None
) -> FloatGrid | Fp4Grid:
    """E4M3 has twelve octaves of normal numbers: clipping gains nothing, so the largest weight sets the scale."""
    if scheme.num_bits == 4:
        return fp4_grid(weight, scheme, importance)
    block = scheme.block_shape
    if scheme.strategy == "tensor":
        return FloatGrid(scales=stored_scale(weight.abs().amax().reshape(1, 1) / E4M3_MAX, dtype))
    if block is None:
        return FloatGrid(scales=stored_scale(weight.abs().amax(1, keepdim=True) / E4M3_MAX, dtype))
    rows, columns = (-(-size // step) for size, step in zip(weight.shape, block, strict=True))
    padded = torch.zeros(rows * block[0], columns * block[1])
    padded[: weight.shape[0], : weight.shape[1]] = weight
    amax = padded.abs().reshape(rows, block[0], columns, block[1]).amax((1, 3))
    return FloatGrid(scales=stored_scale(amax / E4M3_MAX, dtype), block=block)


class _Search:
    """One matrix, [out, groups, group]."""

    def __init__(self, grouped: Tensor, weighting: Tensor | None, scheme: QuantScheme, dtype: torch.dtype) -> None:
        self.weight = grouped
        self.weighting = weighting  # [groups, group]; None: no input is known
        self.limit = (1 << scheme.num_bits) - 1
        self.least_zero = scheme.least_zero
        self.dtype = dtype
        shape = grouped.shape[:2]
        self.best = torch.full(shape, torch.inf)
        self.scales = torch.full(shape, 1.0)
        self.zeros = torch.full(shape, float((self.limit + 1) // 2))

    def symmetric(self) -> tuple[Tensor, Tensor]:
        """One end; the zero is the middle code."""
        amax = self.weight.abs().amax(-1)
        for shrink in FINE:
            self._offer(stored_scale(2 * amax * shrink / self.limit, self.dtype), self.zeros)
        return self._refitted()

    def asymmetric(self) -> tuple[Tensor, Tensor]:
        """Both ends."""
        low, high = self.weight.amin(-1).clamp_max(0), self.weight.amax(-1).clamp_min(0)
        ends = torch.ones(2, *low.shape)
        for below, above in product(COARSE, COARSE):
            self._offer_range(low, high, torch.full_like(low, below), torch.full_like(low, above), ends)
        coarse = ends.clone()
        for below, above in product((-NEAR, 0.0, NEAR), (-NEAR, 0.0, NEAR)):
            if below or above:
                self._offer_range(low, high, coarse[0] + below, coarse[1] + above, ends)
        return self._refitted()

    def _offer_range(self, low: Tensor, high: Tensor, below: Tensor, above: Tensor, ends: Tensor) -> None:
        scales = stored_scale((high * above - low * below) / self.limit, self.dtype)
        better = self._offer(scales, torch.round(-low * below / scales).clamp_(self.least_zero, self.limit))
        ends[0], ends[1] = torch.where(better, below, ends[0]), torch.where(better, above, ends[1])

    def _steps(self, scales: Tensor, zeros: Tensor) -> Tensor:
        low = -zeros[..., None]
        return torch.round(self.weight / scales[..., None]).clamp_(low, low + self.limit)

    def _offer(self, scales: Tensor, zeros: Tensor) -> Tensor:
        """Take a candidate wherever it is better; tell where."""
        error = self._steps(scales, zeros).mul_(scales[..., None]).sub_(self.weight)
        loss = error.square_().mul_(error if self.weighting is None else self.weighting).sum(-1)  # |e|^4, or h e^2
        better = loss < self.best
        self.best = torch.where(better, loss, self.best)
        self.scales = torch.where(better, scales, self.scales)
        self.zeros = torch.where(better, zeros, self.zeros)
        return better

    def _refitted(self) -> tuple[Tensor, Tensor]:
        for _ in range(REFITS if self.weighting is not None else 0):
            steps = self._steps(self.scales, self.zeros)
            weighted = steps * self.weighting
            above = (weighted * self.weight).sum(-1)
            below = (weighted * steps).sum(-1)
            fitted = torch.where((below > 0) & (above > 0), above / below.clamp_min(1e-30), self.scales)
            self._offer(stored_scale(fitted, self.dtype), self.zeros)
        return self.scales, self.zeros
