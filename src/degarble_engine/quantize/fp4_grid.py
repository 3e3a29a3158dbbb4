"""E2M1 in small groups: NVFP4 (16 inputs, E4M3 scales under one global scale) and MXFP4 (32 inputs, powers of two).

    NVFP4    value = e2m1(code) * (scale / divisor)       compressed-tensors; divisor = 448 * 6 / amax of the fused matrices
                     e2m1(code) * (scale * multiplier)    ModelOpt; multiplier = amax / (448 * 6)
    MXFP4    value = e2m1(code) * 2^(byte - 127)

The largest weight of a group is brought to 6, the largest E2M1 value, or to 4, where the distance to the next values is
half as large and more weights may gain than the largest loses; the better of several is taken for each group, by the same
measure as in clip_search.py. Scales are rounded as they are stored before anything is compared.
Sources: degarble/formats/nvfp4.py, mxfp4.py; the choice of 6 or 4: Cook et al. 2025, arXiv:2512.02010.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from degarble.formats.e2m1 import VALUES
from degarble_engine.quantize.grid import E4M3_MAX, Grid, Line
from degarble_engine.quantize.scheme import QuantScheme

E2M1_MAX = 6.0
LARGEST_TO = (6.0, 5.2, 4.0, 6.7, 7.5)
"""What the largest weight of a group is brought to, NVFP4; above 6 it is clipped."""
LEAST_E4M3 = 2.0**-9
LEAST_EXPONENT = -126
MIDDLES = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
LEVELS = torch.from_numpy(VALUES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fp4Grid(Grid):
    """Groups of inputs, each with one scale."""

    scales: Tensor  # [out, groups] what codes are multiplied with, fp32
    stored: Tensor  # [out, groups] E4M3 values or powers of two, as the file has them
    group_size: int
    global_scale: float | None = None
    """Divisor or multiplier, as the layout stores it."""

    def _of(self, columns: Tensor) -> Tensor:
        return self.scales[:, columns // self.group_size]

    def round(self, weight: Tensor, columns: Tensor) -> Tensor:
        """See Grid.round."""
        scales = self._of(columns)
        return nearest(weight / scales) * scales

    def line(self, columns: Tensor) -> Line:
        """See Grid.line."""
        scales = self._of(columns).T.contiguous()

        def rounded(at: int, weight: Tensor) -> Tensor:
            return nearest(weight / scales[at]) * scales[at]

        return rounded

    def encode(self, values: Tensor) -> Tensor:
        """See Grid.encode."""
        scaled = values / self._of(torch.arange(values.shape[1]))
        return _codes(scaled)

    def decode(self, codes: Tensor) -> Tensor:
        """See Grid.decode."""
        return LEVELS[codes.long()] * self._of(torch.arange(codes.shape[1]))

    def of_rows(self, start: int, stop: int) -> Fp4Grid:
        """See Grid.of_rows. The global scale is that of all rows: engines fuse them."""
        return replace(self, scales=self.scales[start:stop], stored=self.stored[start:stop])


def nearest(scaled: Tensor) -> Tensor:
    """Nearest values; beyond 6 they are 6. Half-way between two it is the smaller, in size."""
    return LEVELS[torch.bucketize(scaled.abs(), MIDDLES)].copysign(scaled)


def _codes(scaled: Tensor) -> Tensor:
    """Sign and place; a zero has the code of plus zero."""
    place = torch.bucketize(scaled.abs(), MIDDLES)
    return (place + 8 * ((scaled < 0) & (place > 0))).to(torch.uint8)


def fp4_grid(weight: Tensor, scheme: QuantScheme, importance: Tensor | None = None) -> Fp4Grid:
    """The grid of a matrix [out, in], or of matrices that engines fuse, one below the other."""
    size = scheme.group_of(weight.shape[1])
    grouped = weight.reshape(weight.shape[0], -1, size)
    amax = grouped.abs().amax(-1)
    weighting = None if importance is None else importance.float().reshape(-1, size)
    global_scale = None
    if scheme.scale_type == "e4m3":
        largest = float(amax.max()) or E4M3_MAX * E2M1_MAX
        whole = E4M3_MAX * E2M1_MAX / largest
        global_scale = float(torch.tensor(1 / whole if scheme.is_multiplied else whole, dtype=torch.float32))
    best = torch.full_like(amax, torch.inf)
    chosen_stored = torch.ones_like(amax)
    chosen = torch.ones_like(amax)
    for stored, scales in _offers(amax, scheme, global_scale):
        error = nearest(grouped / scales[..., None]).mul_(scales[..., None]).sub_(grouped).square_()
        loss = error.mul_(error if weighting is None else weighting).sum(-1)
        better = loss < best
        best = torch.where(better, loss, best)
        chosen_stored, chosen = torch.where(better, stored, chosen_stored), torch.where(better, scales, chosen)
    return Fp4Grid(scales=chosen, stored=chosen_stored, group_size=size, global_scale=global_scale)


def _offers(amax: Tensor, scheme: QuantScheme, global_scale: float | None) -> Iterator[tuple[Tensor, Tensor]]:
    """(stored, effective) scales; a group of zeros gets 1."""
    is_zero = amax == 0
    if global_scale is None:
        exponent = torch.where(is_zero, torch.ones_like(amax), amax / E2M1_MAX).log2().ceil()
        for lower in (0, 1):
            power = (exponent - lower).clamp(LEAST_EXPONENT, 127)
            scales = torch.where(is_zero, torch.ones_like(amax), torch.exp2(power))
            yield scales, scales
        return
    whole = torch.tensor(global_scale, dtype=torch.float32)
    for largest_to in LARGEST_TO:
        ideal = amax / largest_to
        ideal = ideal / whole if scheme.is_multiplied else ideal * whole
        stored = ideal.clamp(LEAST_E4M3, E4M3_MAX).to(torch.float8_e4m3fn).float()
        stored = torch.where(is_zero, torch.ones_like(stored), stored)
        yield stored, (stored * whole if scheme.is_multiplied else stored / whole)
