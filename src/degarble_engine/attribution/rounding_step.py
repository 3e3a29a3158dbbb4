"""Scales of any granularity spread over the weights, the ulp of floats, and the step that four bits would have.

GGUF's rows may be permuted and most of its types hide their scales: nothing here reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from degarble.errors import DegarbleError
from degarble.formats.interface import StoredModule

REFERENCE_GROUP, REFERENCE_LEVELS = 64, 15
EXPONENT, FRACTION = 0x7F800000, 0x007FFFFF
"""Of the bits of an fp32 number."""
PRE_SCALE = "pre_quant_scale"
UNREADABLE = (ValueError, KeyError, IndexError, NotImplementedError, DegarbleError)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpreadScales:
    """Scales of any granularity, and which of them every weight is stored with; spread only when rows are asked for."""

    values: Tensor  # [scale rows, scale columns]
    row_of: Tensor  # [out] which row of scales
    column_of: Tensor | None  # [in] which column, by g_idx; None where they come in runs
    run: int
    """Neighbours that share a column."""
    num_columns: int
    factor: Tensor | None = None
    """[in] a scale of the inputs that belongs into the step."""

    def rows(self, part: slice) -> Tensor:
        """[rows, in] one number a weight."""
        return self._spread(self.values[self.row_of[part]], self.factor)

    def variances(self, part: slice) -> Tensor:
        """[rows, in] s²/12, squared before it is spread."""
        factor = None if self.factor is None else self.factor.square()
        return self._spread(self.values[self.row_of[part]].square() / 12, factor)

    def _spread(self, values: Tensor, factor: Tensor | None) -> Tensor:
        if self.column_of is not None:
            found = values[:, self.column_of]
        elif values.shape[1] == 1:
            found = values.expand(-1, self.num_columns)
        else:
            found = values.repeat_interleave(self.run, dim=1)[:, : self.num_columns]
        return found if factor is None else found * factor

    @property
    def are_powers(self) -> bool:
        """Whether all are powers of two."""
        parts = [self.values] if self.factor is None else [self.values, self.factor]
        return all(bool((torch.frexp(one).mantissa == 0.5).all()) for one in parts)


def stored_scales(module: StoredModule, shape: tuple[int, ...]) -> SpreadScales | None:
    """The scales of a weight [out, in]; None where granularity and shape do not fit."""
    values = np.abs(np.asarray(module.scales(), np.float32))
    if values.ndim != 2 or len(shape) != 2:
        return None
    out, given = shape
    index = module.group_index() if values.shape[1] > 1 and values.shape[0] == out else None
    factor = None
    if module.part(PRE_SCALE) is not None:
        factor = torch.from_numpy(module.array(PRE_SCALE).astype(np.float32).reshape(-1)).abs()
    if index is not None:
        if int(np.max(index, initial=0)) >= values.shape[1]:
            return None
        places, run = np.asarray(index, np.int64), -(-given // values.shape[1])
        if not np.array_equal(places, np.arange(given) // run):
            return SpreadScales(values=torch.from_numpy(values), row_of=torch.arange(out),
                                column_of=torch.from_numpy(places), run=0, num_columns=given, factor=factor)  # fmt: skip
    block = module.form.scheme.block_shape if module.form.scheme is not None else None
    rows, columns = (_run(n, have, b) for n, have, b in zip(shape, values.shape, block or (0, 0), strict=True))
    if rows is None or columns is None:
        return None
    return SpreadScales(values=torch.from_numpy(values), row_of=torch.arange(out) // rows, column_of=None, run=columns,
                        num_columns=given, factor=factor)  # fmt: skip


def ulps(values: Tensor, mantissa: int) -> Tensor:
    """Distance to the next number of a float format with so many bits behind the point. 0 for 0 and for what fp32 holds as
    subnormal."""
    return (values.view(torch.int32) & EXPONENT).view(torch.float32) * 2.0**-mantissa


def are_powers(values: Tensor) -> Tensor:
    """Which of some numbers are powers of two, by the bits of their fraction."""
    return (values.view(torch.int32) & FRACTION) == 0


def group_steps(weight: Tensor) -> tuple[Tensor, int]:
    """[out, groups] the step that rounding to four bits, asymmetric, in groups of 64, would have here; the group's size."""
    size = REFERENCE_GROUP if weight.shape[-1] % REFERENCE_GROUP == 0 else weight.shape[-1]
    groups = weight.reshape(weight.shape[0], -1, size)  # two reductions: aminmax is ten times as slow as both
    return (groups.amax(-1).clamp_min(0) - groups.amin(-1).clamp_max(0)) / REFERENCE_LEVELS, size


def reference_steps(weight: Tensor) -> Tensor:
    """[out, in] the same, one number a weight."""
    steps, size = group_steps(weight)
    return steps.repeat_interleave(size, dim=1)


def _run(size: int, have: int, block: int) -> int | None:
    """How many neighbours of `size` positions share one of `have` scales; None where the last would have none, or too many."""
    run = size if have == 1 else block or -(-size // have)
    return max(1, run) if (max(size, 1) - 1) // max(1, run) == have - 1 else None
