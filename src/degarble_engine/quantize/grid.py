"""The values that a stored form can hold: a grid for every row of a matrix. Methods choose values, a grid makes them codes.

    integers   value = (code - zero[o, g]) * scale[o, g]          g = i // group_size
    E4M3       value = float8(code) * scale[o, g]                 one group a row, or blocks of rows and columns

Scales are rounded to the dtype in which they will be stored *before* any weight is rounded: rounding them afterwards
would move every weight. Products are one fp32 multiplication, as readers do it, so what is decoded here is what a reader
gets, bit for bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

E4M3_MAX = 448.0
SMALLEST_SCALE = 2.0**-14
"""The smallest normal number of fp16: a group of zeros gets it, and readers in fp16 do not flush it."""

Line = Callable[[int, Tensor], Tensor]


class Grid(ABC):
    """Values that rows can take. Columns are given by number, since methods take them in an order of their own."""

    scales: Tensor  # [out, groups] fp32, exactly representable in the stored dtype

    @abstractmethod
    def round(self, weight: Tensor, columns: Tensor) -> Tensor:
        """The nearest values for some columns. [out, k] for k column numbers"""

    @abstractmethod
    def line(self, columns: Tensor) -> Line:
        """Rounds one column after the other: (number among `columns`, weights [out]) -> values [out]. For the inner loops of
        methods, where looking up a column's scales would take longer than rounding it."""

    @abstractmethod
    def encode(self, values: Tensor) -> Tensor:
        """Stored codes of all columns, from values that lie on the grid: uint8 [out, in]."""

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """fp32 values, as a reader computes them. [out, in]"""

    @abstractmethod
    def of_rows(self, start: int, stop: int) -> Grid:
        """The grid of some rows."""

    def round_all(self, weight: Tensor) -> Tensor:
        """Round a whole matrix to nearest."""
        return self.round(weight, torch.arange(weight.shape[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntGrid(Grid):
    """Integers with a scale and a zero point for every group of inputs."""

    scales: Tensor  # [out, groups]
    zeros: Tensor  # [out, groups] fp32 whole numbers, in units of unsigned codes
    num_bits: int
    group_size: int

    @property
    def largest(self) -> int:
        """The last code."""
        return (1 << self.num_bits) - 1

    def _group(self, columns: Tensor) -> Tensor:
        return columns // self.group_size

    def steps(self, weight: Tensor, columns: Tensor) -> Tensor:
        """Nearest codes less their zero point: whole numbers in fp32. [out, k]"""
        group = self._group(columns)
        zeros = self.zeros[:, group]
        return torch.round(weight / self.scales[:, group]).clamp_(-zeros, self.largest - zeros)

    def round(self, weight: Tensor, columns: Tensor) -> Tensor:
        """See Grid.round."""
        return self.steps(weight, columns) * self.scales[:, self._group(columns)]

    def line(self, columns: Tensor) -> Line:
        """See Grid.line."""
        group = self._group(columns)
        scales = self.scales[:, group].T.contiguous()
        low = -self.zeros[:, group].T.contiguous()
        high = low + self.largest

        def rounded(at: int, weight: Tensor) -> Tensor:
            steps = torch.round(weight / scales[at])
            return torch.clamp(steps, low[at], high[at]).mul_(scales[at])

        return rounded

    def encode(self, values: Tensor) -> Tensor:
        """See Grid.encode."""
        columns = torch.arange(values.shape[1])
        return (self.steps(values, columns) + self.zeros[:, self._group(columns)]).to(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        """See Grid.decode."""
        group = self._group(torch.arange(codes.shape[1]))
        return (codes.float() - self.zeros[:, group]) * self.scales[:, group]

    def of_rows(self, start: int, stop: int) -> IntGrid:
        """See Grid.of_rows."""
        return replace(self, scales=self.scales[start:stop], zeros=self.zeros[start:stop])

    def with_scales(self, scales: Tensor) -> IntGrid:
        """The same zero points under other scales."""
        return replace(self, scales=scales)


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatGrid(Grid):
    """E4M3 under one scale for `block` rows and columns; None: a row."""

    scales: Tensor  # [row blocks, column blocks]; [out, 1] for rows, [1, 1] for a matrix
    block: tuple[int, int] | None = None

    def _expanded(self, rows: int, columns: Tensor) -> Tensor:
        if self.block is None:
            return self.scales
        by_row = self.scales[torch.arange(rows) // self.block[0]]
        return by_row[:, columns // self.block[1]]

    def round(self, weight: Tensor, columns: Tensor) -> Tensor:
        """See Grid.round."""
        scales = self._expanded(weight.shape[0], columns)
        return _e4m3(weight / scales).float() * scales

    def line(self, columns: Tensor) -> Line:
        """See Grid.line."""

        def rounded(at: int, weight: Tensor) -> Tensor:
            return self.round(weight[:, None], columns[at : at + 1])[:, 0]

        return rounded

    def encode(self, values: Tensor) -> Tensor:
        """See Grid.encode."""
        scales = self._expanded(values.shape[0], torch.arange(values.shape[1]))
        return _e4m3(values / scales).view(torch.uint8)

    def decode(self, codes: Tensor) -> Tensor:
        """See Grid.decode."""
        scales = self._expanded(codes.shape[0], torch.arange(codes.shape[1]))
        return codes.view(torch.float8_e4m3fn).float() * scales

    def of_rows(self, start: int, stop: int) -> FloatGrid:
        """See Grid.of_rows. Blocks of rows are never cut: such forms are rounded one linear at a time."""
        if self.block is None and self.scales.shape[0] > 1:
            return replace(self, scales=self.scales[start:stop])
        assert start == 0 or self.block is None
        return self


def _e4m3(values: Tensor) -> Tensor:
    return values.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn)


def stored_scale(scales: Tensor, dtype: torch.dtype) -> Tensor:
    """fp32 scales as the file will have them: no zero, no subnormal number of fp16, rounded to the stored dtype."""
    return scales.float().clamp_min(SMALLEST_SCALE).to(dtype).float()
