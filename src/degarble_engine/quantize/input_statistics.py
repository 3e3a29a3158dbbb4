"""What calibration tells about the input of a linear: second moments, on the walk of the *quantised* prefix.

    gram   sum over tokens of x x^T                  x: the input behind layers that are quantised already
    drift  sum over tokens of (x_ref - x) x^T        x_ref: the input of the same linear in the reference

With both, the weight that best turns x into what the reference's weight made of x_ref is closed-form (target.py).
Sums are kept in fp32 chunk by chunk; tokens of padding are left out before they come here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True)
class InputStatistics:
    """Of one input."""

    gram: Tensor  # [in, in]
    drift: Tensor | None = None  # [in, in]
    tokens: int = 0
    largest: float = 0.0
    """Largest size of any input."""

    @classmethod
    def empty(cls, size: int, *, has_reference: bool) -> InputStatistics:
        """Nothing seen yet."""
        return cls(torch.zeros(size, size), torch.zeros(size, size) if has_reference else None)

    def add(self, inputs: Tensor, reference: Tensor | None = None) -> None:
        """Take tokens [tokens, in], with the same tokens in the reference."""
        self.gram.addmm_(inputs.T, inputs)
        if self.drift is not None and reference is not None:
            self.drift.addmm_((reference - inputs).T, inputs)
        self.tokens += inputs.shape[0]
        if inputs.numel():
            self.largest = max(self.largest, float(inputs.abs().max()))

    @property
    def importance(self) -> Tensor:
        """Mean square of every input. [in]"""
        return self.gram.diagonal() / max(self.tokens, 1)
