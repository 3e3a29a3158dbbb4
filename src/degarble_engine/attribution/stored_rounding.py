"""What honest rounding to a stored format does to every weight, from the scales in the file and the values found.

    integers    step s on both sides
    E4M3        the ulp of w / s above; below a power of two the grid is twice as fine
    E2M1        gaps .5 .5 .5 .5 .5 1 1 2 (below) and .5 .5 .5 .5 1 1 2 (above) of 0 .5 1 1.5 2 3 4 6
    plain       the ulp of bf16, the same way

E2M1 has so few values that its ends count. Where the scale is the group's largest weight over 6, that weight is stored
exactly and the others at the top came from below. Where scales are powers of two (MXFP4), the largest weight may be
anything up to 8 and is cut to 6. Codebooks and most of GGUF tell no steps: not judged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble.formats.interface import StoredModule
from degarble_engine.attribution.linear_pair import LinearPair
from degarble_engine.attribution.rounding_step import (
    UNREADABLE,
    reference_steps,
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
"""Of `reference_steps`."""


def stored_rounding(module: StoredModule, weight: Tensor, is_gguf: bool) -> Rounding | None:
    """[out, in] for the dequantised `weight`; None where the file does not tell."""
    scheme = module.form.scheme
    if module.form.format == "plain":
        return _float(weight, PLAIN_MANTISSA, None)
    if scheme is None or is_gguf or module.form.missing:
        return None
    try:
        scales = stored_scales(module, weight)
    except UNREADABLE:
        return None
    if scales is None:
        return None
    if scheme.type == "int":
        return Rounding.uniform(scales)
    units = (weight / scales).nan_to_num(0.0, 0.0, 0.0)
    if scheme.type == "float" and scheme.num_bits == 8:
        return _float(units, E4M3_MANTISSA, E4M3_SMALLEST).scaled(scales)
    if scheme.type == "float" and scheme.num_bits == 4:
        return _four_bits(units, scales, scheme.group_size).scaled(scales)
    return None


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
    is_power = torch.frexp(units.abs()).mantissa == 0.5
    below = torch.where(is_power, above / 2, above)
    if smallest is not None:
        above, below = above.clamp_min(smallest), below.clamp_min(smallest)
    return Rounding.between(below, above)


def _four_bits(units: Tensor, scales: Tensor, group_size: int | None) -> Rounding:
    index = torch.bucketize(units.abs(), torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]))
    is_cut = bool((torch.frexp(scales).mantissa == 0.5).all())
    above = torch.tensor((*E2M1_ABOVE, CUT if is_cut else 0.0))
    found = Rounding.between(torch.tensor(E2M1_BELOW)[index], above[index])
    if is_cut or not group_size or group_size > SMALL_GROUP or units.shape[1] % group_size:
        return found
    at_top = (index == len(E2M1_VALUES) - 1).reshape(units.shape[0], -1, group_size)
    count = at_top.sum(-1, keepdim=True).clamp_min(1)
    share = torch.where(at_top, (count - 1) / count, torch.ones(1)).reshape(units.shape)
    return Rounding(reach=found.reach, variance=found.variance * share)


def weight_rounding(pair: LinearPair, precision: Precision, is_gguf: bool) -> Rounding | None:
    """[out, in] of the comparable weights of a pair: stored format and simulated arithmetic, gains and folds applied."""
    stored = None if pair.stored is None else stored_rounding(pair.stored, pair.candidate, is_gguf)
    if stored is None:
        return None
    if precision.weight_bits is not None:
        stored = _both(stored, Rounding.uniform(_simulated_steps(pair.candidate, precision.weight_bits)))
    is_plain = pair.stored is not None and pair.stored.form.format == "plain" and precision.weight_bits is None
    factor = pair.scaled(torch.ones_like(pair.candidate))
    found = stored.scaled(factor)
    return found if is_plain else _kept_above(found, pair)


def _both(one: Rounding, other: Rounding) -> Rounding:
    """Rounded twice, independently."""
    return Rounding(reach=one.reach + other.reach, variance=one.variance + other.variance)


def _simulated_steps(weight: Tensor, bits: int) -> Tensor:
    """Of `precision.rounded`: symmetric, in groups of inputs; the largest weight of a group is exact, so it has the scale."""
    size = GROUP if weight.shape[1] % GROUP == 0 else weight.shape[1]
    steps = weight.abs().reshape(weight.shape[0], -1, size).amax(-1) / (2 ** (bits - 1) - 1)
    return steps.repeat_interleave(size, dim=1)


def _kept_above(found: Rounding, pair: LinearPair) -> Rounding:
    scheme = pair.stored.form.scheme if pair.stored is not None else None
    bits = scheme.num_bits if scheme is not None and scheme.num_bits else 4
    least = reference_steps(pair.folded_reference()) * (MIN_SHARE * LEVELS / (2**bits - 1))
    return Rounding(
        reach=torch.maximum(found.reach, least / 2), variance=torch.maximum(found.variance, least.square() / 12)
    )
