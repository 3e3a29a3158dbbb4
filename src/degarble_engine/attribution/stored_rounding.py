"""What honest rounding to a stored format does to every weight, from the scales in the file and the values found.

    integers    step s on both sides
    E4M3        the ulp of w / s above; below a power of two the grid is twice as fine
    E2M1        gaps .5 .5 .5 .5 .5 1 1 2 (below) and .5 .5 .5 .5 1 1 2 (above) of 0 .5 1 1.5 2 3 4 6
    plain       the ulp of bf16, the same way

E2M1 has so few values that its ends count. Where the scale is the group's largest weight over 6, that weight is stored
exactly and the others at the top came from below. Where scales are powers of two (MXFP4), the largest weight may be
anything up to 8 and is cut to 6. Codebooks and most of GGUF tell no steps: not judged.

Everything is known row by row, so that no table of the size of the weights has to be in memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from degarble.formats.interface import StoredModule
from degarble_engine.attribution.linear_pair import ALL, LinearPair
from degarble_engine.attribution.rounding_step import (
    UNREADABLE,
    SpreadScales,
    are_powers,
    group_steps,
    stored_scales,
    ulps,
)
from degarble_engine.numerics.error_bounds import Rounding
from degarble_engine.numerics.precision import GROUP, Precision

PLAIN_MANTISSA = 7
"""Of bf16, for every plain dtype: what a copy may lose by being stored once more in the usual one."""
E4M3_MANTISSA, E4M3_SMALLEST = 3, 2.0**-9
E2M1_BELOW = (0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 2.0)
E2M1_ABOVE = (0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 2.0)
E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
CUT = 4.0
"""Twice what a group's largest weight, up to 8 in units of a power-of-two scale, loses when it is cut to 6."""
SMALL_GROUP = 64
"""Above it the one exact weight of a group does not count."""
MIN_SHARE = 0.1
"""Of the reference's step: a zeroed row stored with scale 0 would have nothing to expect."""
LEVELS = 15
"""Of `group_steps`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredGrid:
    """The grid that a module's weights are rounded to."""

    kind: str
    """`plain`, `int`, `e4m3` or `e2m1`."""
    scales: SpreadScales | None = None
    is_cut: bool = False
    """Of E2M1: scales are powers of two."""
    group_size: int | None = None

    def rounding(self, weight: Tensor, part: slice = ALL) -> Rounding:
        """[rows, in] for the dequantised rows `weight`, which are `part` of all."""
        if self.scales is None:
            return _float(weight, PLAIN_MANTISSA, None)
        scales = self.scales.rows(part)
        if self.kind == "int":
            return Rounding.uniform(scales)
        units = (weight / scales).nan_to_num(0.0, 0.0, 0.0)
        if self.kind == "e4m3":
            return _float(units, E4M3_MANTISSA, E4M3_SMALLEST).scaled(scales)
        return _four_bits(units, self.is_cut, self.group_size).scaled(scales)

    def variance(self, weight: Tensor, part: slice) -> Tensor:
        """Only the mean square: all that integers need is their step."""
        if self.kind == "int" and self.scales is not None:
            return self.scales.variances(part)
        return self.rounding(weight, part).variance


def stored_grid(module: StoredModule, shape: tuple[int, ...], is_gguf: bool) -> StoredGrid | None:
    """The grid of a weight [out, in]; None where the file does not tell."""
    scheme = module.form.scheme
    if module.form.format == "plain":
        return StoredGrid(kind="plain")
    if scheme is None or is_gguf or module.form.missing:
        return None
    try:
        scales = stored_scales(module, shape)
    except UNREADABLE:
        return None
    if scales is None:
        return None
    if scheme.type == "int":
        return StoredGrid(kind="int", scales=scales)
    if scheme.type == "float" and scheme.num_bits == 8:
        return StoredGrid(kind="e4m3", scales=scales)
    if scheme.type == "float" and scheme.num_bits == 4:
        return StoredGrid(kind="e2m1", scales=scales, is_cut=scales.are_powers, group_size=scheme.group_size)
    return None


def stored_rounding(module: StoredModule, weight: Tensor, is_gguf: bool) -> Rounding | None:
    """[out, in] for the dequantised `weight`, whole; None where the file does not tell."""
    grid = stored_grid(module, tuple(weight.shape), is_gguf)
    return None if grid is None else grid.rounding(weight)


def why_unknown(module: StoredModule | None, is_gguf: bool) -> str:
    """In words, why `stored_rounding` has nothing."""
    if module is None:
        return "its stored tensor was not found"
    if module.form.missing:
        return f"stored without its {', '.join(module.form.missing)}"
    name = module.form.format
    return f"{name} tells no steps of rounding{' (GGUF)' if is_gguf and 'gguf' not in name else ''}"


def _float(units: Tensor, mantissa: int, smallest: float | None) -> Rounding:
    above = ulps(units, mantissa)
    below = torch.where(are_powers(units), above / 2, above)
    if smallest is not None:
        above, below = above.clamp_min(smallest), below.clamp_min(smallest)
    return Rounding.between(below, above)


def _four_bits(units: Tensor, is_cut: bool, group_size: int | None) -> Rounding:
    index = torch.bucketize(units.abs(), torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]))
    above = torch.tensor((*E2M1_ABOVE, CUT if is_cut else 0.0))
    found = Rounding.between(torch.tensor(E2M1_BELOW)[index], above[index])
    if is_cut or not group_size or group_size > SMALL_GROUP or units.shape[1] % group_size:
        return found
    at_top = (index == len(E2M1_VALUES) - 1).reshape(units.shape[0], -1, group_size)
    count = at_top.sum(-1, keepdim=True).clamp_min(1)
    share = torch.where(at_top, (count - 1) / count, torch.ones(1)).reshape(units.shape)
    return Rounding(reach=found.reach, variance=found.variance * share)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRounding:
    """Of the comparable weights of a pair: stored format and simulated arithmetic, gains and folds applied."""

    pair: LinearPair
    grid: StoredGrid
    bits: int | None
    """Of weights in the simulated arithmetic."""

    def rounding(self, part: slice = ALL) -> Rounding:
        """[rows, in] some rows, or all."""
        weight = self.pair.candidate[part]
        stored = self.grid.rounding(weight, part)
        if self.bits is not None:
            stored = _both(stored, Rounding.uniform(_simulated_steps(weight, self.bits)))
        found = stored.scaled(self.pair.scaled(torch.ones_like(weight), part))
        least = self.least(*group_steps(self.pair.folded_reference(part)))
        if least is None:
            return found
        return Rounding(
            reach=torch.maximum(found.reach, least / 2), variance=torch.maximum(found.variance, least.square() / 12)
        )

    def variance(self, part: slice, steps: Tensor, size: int, out: Tensor) -> Tensor:
        """Only the mean square, into `out`. `steps`: `group_steps` of the folded reference's rows."""
        weight = self.pair.candidate[part]
        found = self.grid.variance(weight, part)
        if self.bits is not None:
            found = found + _simulated_steps(weight, self.bits).square() / 12
        columns, rows = self.pair.column_factor(), self.pair.row_fold
        if columns is not None:
            found = torch.mul(found, columns.square(), out=out)
        if rows is not None:
            found = torch.div(found, rows[part, None].square(), out=out)
        if self.is_plain:
            return found if found is out else out.copy_(found)
        least = (steps * self._least_share).square() / 12
        grouped = (*least.shape, size)
        torch.maximum(found.reshape(grouped), least[..., None], out=out.view(grouped))
        return out

    def least(self, steps: Tensor, size: int) -> Tensor | None:
        """[rows, in] the step that is expected at least; None for plain values."""
        return None if self.is_plain else (steps * self._least_share).repeat_interleave(size, dim=1)

    @property
    def _least_share(self) -> float:
        scheme = self.pair.stored.form.scheme if self.pair.stored is not None else None
        bits = scheme.num_bits if scheme is not None and scheme.num_bits else 4
        return MIN_SHARE * LEVELS / float(2**bits - 1)

    @property
    def is_plain(self) -> bool:
        """Stored as it is, and not rounded by the arithmetic either."""
        return self.grid.kind == "plain" and self.bits is None


def pair_rounding(pair: LinearPair, precision: Precision, is_gguf: bool) -> PairRounding | None:
    """None where the file does not tell."""
    grid = None if pair.stored is None else stored_grid(pair.stored, tuple(pair.candidate.shape), is_gguf)
    return None if grid is None else PairRounding(pair=pair, grid=grid, bits=precision.weight_bits)


def _both(one: Rounding, other: Rounding) -> Rounding:
    """Rounded twice, independently."""
    return Rounding(reach=one.reach + other.reach, variance=one.variance + other.variance)


def _simulated_steps(weight: Tensor, bits: int) -> Tensor:
    """Of `precision.rounded`: symmetric, in groups of inputs; the largest weight of a group is exact, so it has the scale."""
    size = GROUP if weight.shape[1] % GROUP == 0 else weight.shape[1]
    steps = weight.abs().reshape(weight.shape[0], -1, size).amax(-1) / (2 ** (bits - 1) - 1)
    return steps.repeat_interleave(size, dim=1)
