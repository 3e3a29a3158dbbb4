"""The Cholesky factor of a Hessian that calibration may have left singular, with damping that is told, never hidden.

A ridge of a hundredth of the mean diagonal is the usual start (GPTQ's `percdamp`). Where that is not enough, it grows
tenfold until the factor exists; every growth is a note for the report. There is no silent fallback to rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

FIRST = 0.01
GROWTH = 10.0
LARGEST = 1e3


@dataclass(frozen=True, slots=True)
class Damped:
    """A Hessian with its ridge."""

    hessian: Tensor  # [in, in] fp64
    factor: Tensor  # lower Cholesky factor, fp64
    share: float
    """Ridge over the mean diagonal."""
    note: str | None


def damped(gram: Tensor, share: float = FIRST) -> Damped:
    """Add a ridge and factor. Raises ValueError where the sums are not finite."""
    wide = gram.double()
    if not bool(torch.isfinite(wide).all()):
        raise ValueError("inputs are not finite: sums of their squares overflow")
    diagonal = wide.diagonal()
    typical = float(diagonal.mean()) or 1.0
    tried = share
    while tried <= LARGEST:
        hessian = wide.clone()
        hessian.diagonal().add_(tried * typical)
        factor, failed = torch.linalg.cholesky_ex(hessian)
        if not int(failed):
            note = None if tried == share else f"damping {tried:g} of the mean diagonal was needed, {share:g} is usual"
            return Damped(hessian, factor, tried, note)
        tried *= GROWTH
    raise ValueError("no damping makes the sums of inputs positive definite")
