"""INT4 that stays packed, multiplied by torch's CPU kernel.

torch keeps codes 0 … 15 with a scale and a shift for each group:   w = (code - 8) · scale + shift
A checkpoint has                                                    w = (code - zero) · scale,   so shift = (8 - zero) · scale

The kernel takes bf16 activations, and scales and shifts in bf16: both are rounded on the way in, at most by 2^-9 of
their size. What was stored exactly is then off by that much, which `rounding` states; where it must not be, dense
weights are the choice. Its cost grows with the rows, so from `MAX_ROWS` on a dense copy is the faster one.
Source of the layout: torch, aten/src/ATen/native/cpu/int4mm_kernel.cpp.
"""

from __future__ import annotations

import torch
from torch import Tensor

from degarble_engine.models.linear import Linear

GROUP_SIZES = frozenset({32, 64, 128, 256})
OUTPUT_MULTIPLE = 16
MAX_ROWS = 4


class Int4Linear(Linear):
    """Packed codes for few rows; `dense` multiplies larger batches."""

    kind = "int4-packed"

    def __init__(
        self, codes: Tensor, scales: Tensor, zeros: Tensor, bias: Tensor | None = None, dense: Linear | None = None
    ) -> None:
        """codes [out, in] of 0 … 15, scales and zeros [out, groups] fp32. Raises ValueError for shapes the kernel lacks."""
        self.num_outputs, num_inputs = codes.shape
        self.group_size = num_inputs // scales.shape[1]
        if self.group_size not in GROUP_SIZES or self.num_outputs % OUTPUT_MULTIPLE or num_inputs % self.group_size:
            raise ValueError(
                f"{list(codes.shape)} in groups of {self.group_size}: torch's int4 kernel has no such shape"
            )
        self._packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.to(torch.int32).contiguous(), 1)
        exact = torch.stack([scales, (8 - zeros) * scales], dim=-1)
        self._scales = exact.transpose(0, 1).to(torch.bfloat16).contiguous()
        worst = (self._scales.float().transpose(0, 1) - exact).abs() / exact.abs().clamp_min(1e-30)
        self.rounding = float(worst.max())
        """Largest relative change of a scale or shift."""
        self.bias, self._dense = bias, dense
        self.row_multiple = 1

    @property
    def num_bytes(self) -> int:
        """See Linear; the dense copy, if there is one, counts."""
        own = int(self._packed.numel() * self._packed.element_size() + self._scales.numel() * 2)
        return own + (self._dense.num_bytes if self._dense is not None else 0)

    def product(self, rows: Tensor) -> Tensor:
        """See Linear."""
        if self._dense is not None and rows.shape[0] > MAX_ROWS:
            return self._dense.product(rows)
        found = torch.ops.aten._weight_int4pack_mm_for_cpu(
            rows.to(torch.bfloat16), self._packed, self.group_size, self._scales
        )
        return found.to(rows.dtype)
