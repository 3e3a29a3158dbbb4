"""How large the error of one rounded linear can be, and how large it will be: four bounds and a prediction.

y = W x is computed as Wq xq with Wq = W + dW and xq = x + dx, so that without any approximation

    e = Wq xq - W x = dW x + Wq dx

Of every rounding two numbers are known: r, the most it can move a value, and v, its mean square. On an integer grid with
step s these are s/2 and s²/12; on the grid of a float format the gaps below and above a value differ.

    deterministic     |e_i| <= Σ r_ij |x_j| + Σ |Wq_ij| r_j               from scales and x; also what intervals give
    Cauchy-Schwarz    |e_i| <= ‖dW_i‖ ‖x‖ + ‖Wq_i‖ ‖r‖                    needs W
    spectral          ‖e‖ <= ‖dW‖ ‖x‖ + ‖Wq‖ ‖r‖, largest singular values  needs W
    Hoeffding         |e_i| <= sqrt(2 ln(2/δ) · Σ (r x)² …)               but for a share δ, if roundings are independent
    sigma             e_i has variance Σ v_ij x_j² + Σ Wq_ij² v_j         from scales and x; no bound: what to expect

The first three hold always where nothing was clipped. Probabilistic rounding analysis (Ipsen and Zhou, arXiv 1906.10465)
replaces the factor n of worst cases by sqrt(n); the last two lines are that for one linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

POWER_STEPS, POWER_VECTORS, POWER_FAILURE = 20, 8, 1e-9
"""Of the power iteration: pairs of products, start vectors, and how likely its result may be too small."""
PROBE_SEED = 1906


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """What rounding does to each of some values."""

    reach: Tensor
    """The most that it moves a value."""
    variance: Tensor
    """Its mean square."""

    @classmethod
    def uniform(cls, step: Tensor) -> Rounding:
        """To the nearest multiple of a step."""
        return cls(reach=step / 2, variance=step.square() / 12)

    @classmethod
    def between(cls, below: Tensor, above: Tensor) -> Rounding:
        """To the nearest of values that have these gaps below and above them: (a³ + b³) / (12 (a + b))."""
        total = (below + above).clamp_min(1e-45)
        return cls(reach=torch.maximum(below, above) / 2, variance=(below.pow(3) + above.pow(3)) / (12 * total))

    def scaled(self, factor: Tensor) -> Rounding:
        """Of values that are multiplied by something afterwards."""
        return Rounding(reach=self.reach * factor.abs(), variance=self.variance * factor.square())


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedLinear:
    """One linear, what it was rounded from, and how."""

    quantized: Tensor  # [out, in]
    inputs: Tensor  # [tokens, in] of the reference
    rounding: Rounding  # [out, in]
    reference: Tensor | None = None  # [out, in]
    input_rounding: Rounding | None = None  # [tokens, in]; None where inputs are not rounded

    def deterministic(self) -> Tensor:
        """[tokens, out] no entry can exceed it."""
        found = self.inputs.abs() @ self.rounding.reach.T
        return found if self.input_rounding is None else found + self.input_rounding.reach @ self.quantized.abs().T

    def cauchy_schwarz(self) -> Tensor:
        """[tokens, out] the same, from norms of rows. Needs the reference."""
        found = self.inputs.norm(dim=1, keepdim=True) * self._difference().norm(dim=1)
        if self.input_rounding is not None:
            found = found + self.input_rounding.reach.norm(dim=1, keepdim=True) * self.quantized.norm(dim=1)
        return found

    def spectral(self) -> Tensor:
        """[tokens] bound of the norm of each token's error. Needs the reference."""
        found = self.inputs.norm(dim=1) * spectral_norm(self._difference())
        if self.input_rounding is not None:
            found = found + self.input_rounding.reach.norm(dim=1) * spectral_norm(self.quantized)
        return found

    def hoeffding(self, failure: float) -> Tensor:
        """[tokens, out] exceeded with a probability of at most `failure`, for each entry by itself."""
        widths = self.inputs.square() @ self.rounding.reach.square().T
        if self.input_rounding is not None:
            widths = widths + self.input_rounding.reach.square() @ self.quantized.square().T
        return (2 * math.log(2 / failure) * widths).sqrt()

    def sigma(self) -> Tensor:
        """[tokens, out] standard deviation of the error under honest rounding."""
        variance = self.inputs.square() @ self.rounding.variance.T
        if self.input_rounding is not None:
            variance = variance + self.input_rounding.variance @ self.quantized.square().T
        return variance.sqrt()

    def _difference(self) -> Tensor:
        if self.reference is None:
            raise ValueError("this bound needs the reference's weight")
        return self.quantized - self.reference


def spectral_norm(matrix: Tensor) -> float:
    """Largest singular value from above: power iteration, raised so that it is too small once in 1e9 matrices.

    For a random unit vector u and a positive G of n rows, λmax <= θ (uᵀ Gᵏ u)^(1/k) but for a probability of
    0.8 sqrt(n) θ^(-k/2) (J. D. Dixon, Estimating extremal eigenvalues, SIAM J. Numer. Anal. 20, 1983). The result is 6 to
    30 % too large, far more than fp32 can take from it.
    """
    size = min(matrix.shape)
    tall = matrix.float() if matrix.shape[0] >= matrix.shape[1] else matrix.float().T
    scale = float(tall.abs().max()) if tall.numel() else 0.0
    if scale == 0.0 or not math.isfinite(scale):
        return scale
    tall = tall / scale
    generator = torch.Generator().manual_seed(PROBE_SEED)
    vectors = torch.randn(size, POWER_VECTORS, generator=generator)
    vectors = vectors / vectors.norm(dim=0)
    growth = torch.zeros(POWER_VECTORS, dtype=torch.float64)
    for _ in range(POWER_STEPS):
        vectors = tall.T @ (tall @ vectors)
        norms = vectors.norm(dim=0).clamp_min(1e-30)
        growth += norms.double().log()
        vectors = vectors / norms
    each = POWER_FAILURE ** (1 / POWER_VECTORS)
    raised = math.log(0.8 * math.sqrt(size) / each) / POWER_STEPS
    largest = float(growth.max()) / POWER_STEPS
    return scale * math.exp((largest + max(0.0, raised)) / 2)


def coverage(error: Tensor, sigma: Tensor, times: float = 2.0) -> float:
    """Share of entries within so many sigma; 95.4 % within two is what honest rounding gives."""
    return float((error.abs() <= times * sigma).float().mean()) if error.numel() else 1.0


def expected_coverage(times: float) -> float:
    """The same for a normal distribution."""
    return math.erf(times / math.sqrt(2))


def rms(values: Tensor) -> float:
    """Root of the mean square."""
    return float(values.float().square().mean().sqrt()) if values.numel() else 0.0


def ratios(error: Tensor, sigma: Tensor) -> Tensor:
    """Error over sigma. Nothing to expect and nothing found is 0; something where nothing was expected is infinite."""
    found = error / sigma.clamp_min(1e-30)
    return torch.where(error == 0, torch.zeros_like(found), found)


def z_by_row(error: Tensor, sigma: Tensor) -> Tensor:
    """[out] rms of error / sigma over tokens; near 1 for honest rounding."""
    return ratios(error, sigma).square().mean(0).sqrt()
