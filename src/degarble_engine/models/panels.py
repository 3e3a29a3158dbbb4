"""Weights in the order in which a library's kernel reads them, made once.

    fp16-panels   FBGEMM: fp16 in memory, widened in registers, products and sums in fp32. What bf16 or fp16 weights are
                  exactly, but for numbers below 2^-17, at half the memory of fp32; the fastest from 1 to 512 rows on
                  processors without bf16 units (benchmarks/serve_speed.py).
    *-panels      oneDNN, in the dtype that is computed in.

Both are operators that torch does not promise to keep: where one is missing or refuses, the next kind is taken, and the
account of the weight store says which. Where results must not depend on the batch, each kind proves it here for every
number of inputs: FBGEMM sums in another order where one or two rows remain of its tiles of three to six, so rows are filled
up to multiples of three.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from degarble_engine.models.linear import ROW_MULTIPLE, Linear, verify_rows
from degarble_engine.models.processor import has_bf16_units

TOLERANCE = {torch.float32: 2.0**-20, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Largest change of a weight in fp16, as a share of the matrix's largest, by the precision that was asked for."""
PROBE_OUTPUTS = 48


class HalfPanels(Linear):
    """FBGEMM's fp16 panels with activations in fp32."""

    kind = "fp16-panels"
    row_multiples = (3, 12)

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out, in] in fp32. Raises RuntimeError where torch was built without FBGEMM."""
        self.num_outputs, self._num_inputs = weight.shape
        self._packed = torch.ops.quantized.linear_prepack_fp16(weight.float().contiguous(), None)
        self._multiply = torch.ops.quantized.linear_dynamic_fp16.default
        self.bias = bias

    @property
    def num_bytes(self) -> int:
        """See Linear."""
        return 2 * int(self.num_outputs * self._num_inputs)

    def product(self, rows: Tensor) -> Tensor:
        """See Linear."""
        found: Tensor = self._multiply(rows, self._packed)
        return found


class LibraryPanels(Linear):
    """oneDNN's own order, for the dtype of the weight."""

    row_multiples = (1, ROW_MULTIPLE)
    USUAL_ROWS = 32
    """What the order is chosen for; any number of rows may be multiplied."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        """`weight` [out, in]. Raises RuntimeError where oneDNN lacks the dtype."""
        self.num_outputs, self._num_inputs = weight.shape
        self._dtype, self.bias = weight.dtype, bias
        self.kind = f"{str(weight.dtype).removeprefix('torch.')}-panels"
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), self.USUAL_ROWS)

    @property
    def num_bytes(self) -> int:
        """See Linear."""
        return int(self._dtype.itemsize * self.num_outputs * self._num_inputs)

    def product(self, rows: Tensor) -> Tensor:
        """See Linear."""
        found: Tensor = torch.ops.mkldnn._linear_pointwise(rows.contiguous(), self._packed, None, "none", [], "")
        return found


class PanelMaker:
    """Chooses and proves."""

    def __init__(self, dtype: torch.dtype, held_as: torch.dtype, *, is_batch_invariant: bool) -> None:
        """`dtype`: of the activations; `held_as`: the precision that weights may be rounded to."""
        self._dtype, self._tolerance = dtype, TOLERANCE.get(held_as, 0.0)
        self._is_invariant = is_batch_invariant
        self._multiples: dict[tuple[type[Linear], int], int | None] = {}
        self.rounding = 0.0
        """Largest change of a weight, as a share of its matrix's largest."""

    def make(self, weight: Tensor, bias: Tensor | None) -> Linear | None:
        """Of `weight` [out, in] in fp32; None where no kind will do."""
        for kind in self._kinds():
            rounding = _rounding(weight) if kind is HalfPanels else 0.0
            multiple = self._multiple(kind, weight.shape[1]) if rounding <= self._tolerance else None
            if multiple is not None:
                made = kind(weight.to(torch.float32 if kind is HalfPanels else self._dtype), bias)
                made.row_multiple = multiple
                self.rounding = max(self.rounding, rounding)
                return made
        return None

    def _kinds(self) -> Iterator[type[HalfPanels | LibraryPanels]]:
        if self._dtype == torch.float32:
            yield HalfPanels
            yield LibraryPanels
        elif self._dtype == torch.bfloat16 and has_bf16_units():
            yield LibraryPanels

    def _multiple(self, kind: type[HalfPanels | LibraryPanels], num_inputs: int) -> int | None:
        """Rows that batches are filled up to; None if the operator is missing, or rows change with the batch."""
        key = kind, num_inputs
        if key not in self._multiples:
            try:
                self._multiples[key] = self._proven(kind, num_inputs)
            except (RuntimeError, AttributeError, NotImplementedError):
                self._multiples[key] = None
        return self._multiples[key]

    def _proven(self, kind: type[HalfPanels | LibraryPanels], num_inputs: int) -> int | None:
        generator = torch.Generator().manual_seed(1)
        probe = kind(torch.randn(PROBE_OUTPUTS, num_inputs, generator=generator).to(self._dtype))
        for multiple in kind.row_multiples if self._is_invariant else (1,):
            probe.row_multiple = multiple
            if not self._is_invariant:
                probe(torch.zeros(2, num_inputs, dtype=self._dtype))
                return multiple
            if verify_rows(probe, num_inputs, self._dtype) is None:
                return multiple
        return None


def _rounding(weight: Tensor) -> float:
    """Of fp16; a NaN for what is not finite there."""
    largest = float(weight.abs().max())
    change = float((weight.half().float() - weight).abs().max())
    return change / largest if largest else change
