"""What a simulated arithmetic does to the inputs of a linear: the rounded values, and how far and how much they moved.

bits    one scale a token, absmax / (2^(b-1) - 1), as `precision.rounded` has it
fp8     E4M3, one scale a token: gaps are the ulp of each value
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.numerics.error_bounds import Rounding
from degarble_engine.numerics.precision import E4M3_MAX, Precision

E4M3_BITS, E4M3_SMALLEST = 3, 2.0**-9


def input_rounding(values: Tensor, factor: Tensor | None, precision: Precision) -> tuple[Tensor, Rounding | None]:
    """`values` [tokens, in] as the kernel reads them, and how they were rounded; None where they were not.

    `factor` [in]: what the candidate's own input is multiplied with (a norm's gain) before it is rounded; the result is
    divided by it again, so that it stands beside weights that carry it.
    """
    if precision.activation_bits is None and not precision.activation_fp8:
        return values, None
    own = values if factor is None else values * factor
    rounded = precision.input(own)
    largest = own.abs().amax(1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    reach = _reach(own, largest, precision.activation_bits)
    found = Rounding(reach=reach, variance=(rounded - own).square())
    if factor is None:
        return rounded, found
    divisor = torch.where(factor == 0, torch.ones_like(factor), factor)
    return rounded / divisor, found.scaled(1 / divisor)


def _reach(own: Tensor, largest: Tensor, bits: int | None) -> Tensor:
    if bits is not None:
        return (largest / (2 ** (bits - 1) - 1) / 2).expand_as(own)
    scale = largest / E4M3_MAX
    exponent = torch.frexp(own / scale).exponent
    return torch.ldexp(torch.ones_like(own), exponent - 1 - E4M3_BITS).clamp_min(E4M3_SMALLEST) * scale / 2
