"""What calibration tells about the input of a linear: second moments, on the walk of the *quantised* prefix.

    gram   sum over tokens of x x^T                  x: the input behind layers that are quantised already
    drift  sum over tokens of (x_ref - x) x^T        x_ref: the input of the same linear in the reference

With both, the weight that best turns x into what the reference's weight made of x_ref is closed-form (target.py).
Sums are kept in fp32 chunk by chunk; tokens of padding are left out before they come here. The gram is symmetric, so only
the blocks on and above its diagonal are multiplied, and the rest is mirrored.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 256
"""Inputs whose rows of the gram are one product: 0.58 of the multiplications of a whole one for 1,536 inputs."""


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
        self._add_gram(inputs)
        if self.drift is not None and reference is not None:
            self.drift.addmm_((reference - inputs).T, inputs)
        self.tokens += inputs.shape[0]
        if inputs.numel():
            self.largest = max(self.largest, float(inputs.abs().max()))

    def _add_gram(self, inputs: Tensor) -> None:
        for start in range(0, inputs.shape[1], BLOCK):
            stop = start + BLOCK
            self.gram[start:stop, start:].addmm_(inputs[:, start:stop].T, inputs[:, start:])
            self.gram[stop:, start:stop] = self.gram[start:stop, stop:].T

    @property
    def importance(self) -> Tensor:
        """Mean square of every input. [in]"""
        return self.gram.diagonal() / max(self.tokens, 1)
