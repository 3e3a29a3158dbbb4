"""The error bound of the post-mortem degarble comes from, under each reading of its norm, and what it has to say instead.

    printed     ‖ε_L‖∞ <= Σ_l (Δw ‖X‖∞ + Δa ‖W‖∞)      Δw = max|W| / 127, Δa = max|A| / 15 for W8A4

Read with largest entries, as its numbers were, nothing in it grows with the inner dimension n, while the error of honest
rounding grows with sqrt(n) and its worst case with n. Read with row sums (the operator norm that belongs to largest
entries) one term or both become right, and what is missing is the product of the two roundings:

    one linear  |e_ti| <= rw Σ_j |x_tj| + ra Σ_j |w_ij| + n rw ra      r: the most that rounding moves a value
    layers      not a sum: the error of layer l reaches the end times what all later layers do to it

255 levels over ±max|W| have rw = Δw / 2. Sixteen levels have ra = Δa / 2 over 0..max|A|, and ra = Δa over ±max|A|, where
their step is 2 Δa: the printed Δa is a step for inputs that are never negative only.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

CLAIMED_SHARE = 0.923
"""Of the first layer's attention outputs inside the bound, as the source has it."""
PLAIN_BITS = 16
"""From here on a value counts as not rounded."""


class Reading(StrEnum):
    """What ‖·‖∞ of a matrix may mean."""

    ENTRIES = "largest entries"
    WEIGHT_ROWS = "row sums of W, largest entry of X"
    ALL_ROWS = "row sums of W and X"


@dataclass(frozen=True, slots=True, kw_only=True)
class Widths:
    """Bits of weights and activations."""

    weight: int
    activation: int
    signed: bool = True
    """Whether the levels of activations stand on both sides of zero."""

    def weight_delta(self, weight: Tensor) -> float:
        """max|W| / (2^(b-1) - 1): 127 for eight bits."""
        return 0.0 if self.weight >= PLAIN_BITS else float(weight.abs().max()) / (2 ** (self.weight - 1) - 1)

    def activation_delta(self, inputs: Tensor) -> float:
        """max|A| / (2^b - 1): 15 for four bits."""
        return 0.0 if self.activation >= PLAIN_BITS else float(inputs.abs().max()) / (2**self.activation - 1)

    def activation_reach(self, inputs: Tensor) -> float:
        """The most that rounding moves an activation."""
        return self.activation_delta(inputs) * (1.0 if self.signed else 0.5)

    def round_weight(self, weight: Tensor) -> Tensor:
        """Honestly, one scale for the whole matrix: multiples of Δw."""
        delta = self.weight_delta(weight)
        return (weight / delta).round() * delta if delta else weight

    def round_inputs(self, inputs: Tensor) -> Tensor:
        """Honestly, one scale for all: 2^b levels over ±max|A| (odd multiples of Δa), or over 0..max|A|."""
        delta = self.activation_delta(inputs)
        if not delta:
            return inputs
        if not self.signed:
            return (inputs / delta).round() * delta
        top = 2**self.activation - 1
        return (2 * ((inputs / delta - 1) / 2).round() + 1).clamp(-top, top) * delta


def printed_bound(weight: Tensor, inputs: Tensor, widths: Widths, reading: Reading) -> float:
    """The formula's term for one linear, for `inputs` [tokens, in] and `weight` [out, in]."""
    of_weight = weight.abs().max() if reading is Reading.ENTRIES else weight.abs().sum(1).max()
    of_inputs = inputs.abs().sum(1).max() if reading is Reading.ALL_ROWS else inputs.abs().max()
    return widths.weight_delta(weight) * float(of_inputs) + widths.activation_delta(inputs) * float(of_weight)


def corrected_bound(weight: Tensor, inputs: Tensor, widths: Widths) -> Tensor:
    """[tokens, out] what no entry of one linear's error can exceed."""
    of_weight, of_input = widths.weight_delta(weight) / 2, widths.activation_reach(inputs)
    by_token = of_weight * inputs.abs().sum(1, keepdim=True)
    return by_token + of_input * weight.abs().sum(1) + weight.shape[1] * of_weight * of_input


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Honest rounding of one random linear against the formula."""

    inner: int
    excess: dict[Reading, float]
    """Largest error over the bound: above 1 it is no bound."""
    inside: dict[Reading, float]
    """Share of entries within the bound."""
    corrected: float
    """Largest error over the corrected bound of its entry."""


def try_formula(inner: int, widths: Widths, *, rows: int = 256, tokens: int = 64, seed: int = 0) -> Trial:
    """Normal weights and inputs (their absolute values where levels are not signed), both rounded honestly."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, inner, generator=generator)
    inputs = torch.randn(tokens, inner, generator=generator)
    inputs = inputs if widths.signed else inputs.abs()
    error = (widths.round_inputs(inputs) @ widths.round_weight(weight).T - inputs @ weight.T).abs()
    bounds = {reading: printed_bound(weight, inputs, widths, reading) for reading in Reading}
    return Trial(
        inner=inner,
        excess={reading: float(error.max()) / bound for reading, bound in bounds.items()},
        inside={reading: float((error <= bound).float().mean()) for reading, bound in bounds.items()},
        corrected=float((error / corrected_bound(weight, inputs, widths)).max()),
    )
