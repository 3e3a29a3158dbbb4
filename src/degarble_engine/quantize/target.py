"""The weight to aim at: not the reference's own, but the one that undoes what earlier layers already did to the input.

A layer of the quantised model reads x where the reference reads x_ref. Of all weights, the one whose output on x is
nearest to the reference's W x_ref is, in least squares with a ridge,

    T = W + W D (G + r I)^-1        G = sum x x^T,  D = sum (x_ref - x) x^T

Rounding T instead of W under the same Hessian G corrects inherited error with every linear, at the cost of one solve.
`strength` in 0..1 takes a part of the step: the correction is fitted to the calibration tokens, and with few of them a
part of it is noise. Paper: GPTAQ (Li et al. 2025, arXiv:2504.02692), which approximates this step column by column.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.quantize.input_statistics import InputStatistics


def corrected(weight: Tensor, statistics: InputStatistics, factor: Tensor, strength: float) -> Tensor:
    """T of [out, in]; `factor` is the lower Cholesky factor of the damped gram, fp64."""
    if statistics.drift is None or not strength:
        return weight
    step = torch.cholesky_solve(statistics.drift.T, factor.float()).T  # D (G + r I)^-1
    return weight + strength * (weight @ step)
