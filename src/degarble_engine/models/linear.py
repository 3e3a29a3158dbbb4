"""y = x Wᵀ + b, whatever W is kept as.

By default a row's result must not depend on how many rows are computed with it. Matrix libraries choose another kernel
for a few rows than for many, and its sums end in other bits; so rows are filled up to a multiple of `ROW_MULTIPLE`, from
where on every kernel that was tried gives each row the same bits. `verify_rows` proves it on the machine at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F

ROW_MULTIPLE = 8
TRIED_ROWS = (1, 2, 3, 5, 8, 13, 16, 24, 32, 57, 64, 128, 200)


class Linear(ABC):
    """One matrix."""

    kind: str
    """How W is kept, for the report: bf16, int4-packed, …"""
    num_outputs: int
    bias: Tensor | None = None
    row_multiple: int = ROW_MULTIPLE
    row_multiples: tuple[int, ...] = (ROW_MULTIPLE,)
    """What may do, the cheapest first."""

    @property
    @abstractmethod
    def num_bytes(self) -> int:
        """Memory that W takes."""

    @abstractmethod
    def product(self, rows: Tensor) -> Tensor:
        """[n, in] -> [n, out], without the bias."""

    def __call__(self, rows: Tensor) -> Tensor:
        """[n, in] -> [n, out]; zero rows fill the batch up where results must not depend on it."""
        is_full = rows.shape[0] % self.row_multiple == 0
        found = self.product(rows) if is_full else self._filled_product(rows)
        return found if self.bias is None else found + self.bias

    def _filled_product(self, rows: Tensor) -> Tensor:
        return self.product(filled(rows, self.row_multiple))[: rows.shape[0]]


def filled(rows: Tensor, multiple: int) -> Tensor:
    """[n, …] with rows of zeros behind, up to a multiple."""
    missing = -rows.shape[0] % multiple
    return F.pad(rows, (0, 0) * (rows.dim() - 1) + (0, missing)) if missing else rows


class DenseLinear(Linear):
    """W as it is, in the dtype that is computed in."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out, in], `bias` [out]."""
        self.weight, self.bias = weight, bias
        self.num_outputs = weight.shape[0]
        self.kind = str(weight.dtype).removeprefix("torch.")

    @property
    def num_bytes(self) -> int:
        """See Linear."""
        return int(self.weight.numel() * self.weight.element_size())

    def product(self, rows: Tensor) -> Tensor:
        """See Linear."""
        return F.linear(rows, self.weight)


def verify_rows(linear: Linear, num_inputs: int, dtype: torch.dtype) -> int | None:
    """The first batch size whose rows differ in a bit from those of a large batch; None if none of those tried does."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(max(TRIED_ROWS), num_inputs, generator=generator).to(dtype)
    whole = linear(rows)
    return next((count for count in TRIED_ROWS if not torch.equal(linear(rows[:count]), whole[:count])), None)
