"""AWQ GEMV: words along the input axis in natural order, output-major: [out, in / 8].

    word r of output o:   31 | 8r+7 | 8r+6 | … | 8r+1 | 8r | 0

Bit for bit the 4-bit `weight_packed` of compressed-tensors; what differs is the zero points beside it. Back to GEMM the
fields are taken apart, turned and put into the order 0 2 4 6 1 3 5 7. Source: AutoAWQ `modules/linear/gemv.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.awq_gemm import ORDER, PACKED
from degarble.repack.interface import Layout, Relayout, Step, checked, fields_of, fitting, words_of


class AwqGemv(Layout):
    """`qweight` of AWQ, version gemv."""

    name: ClassVar[str] = "awq-gemv"
    widths: ClassVar[tuple[int, ...]] = (4,)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One word."""
        return 1, PACKED

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [out, in / 8]."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        words = np.zeros((out, inputs // PACKED), np.uint32)
        for column in range(inputs):
            words[:, column // PACKED] |= codes[:, column].astype(np.uint32) << np.uint32(4 * (column % PACKED))
        return words.view(np.int32)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [out, in / 8] -> [out, in]."""
        words = fitting(stored, (shape[0], shape[1] // PACKED), np.int32, self.name).view(np.uint32)
        codes = np.empty(shape, np.uint8)
        for column in range(shape[1]):
            codes[:, column] = words[:, column // PACKED] >> np.uint32(4 * (column % PACKED)) & np.uint32(15)
        return codes


def _to_gemm(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def reorder(fields: Array) -> Array:
        return np.asarray(fields.reshape(inputs, out // PACKED, PACKED)[..., ORDER])

    return (
        Step(name="take fields apart", function=lambda words: fields_of(words, num_bits).reshape(out, inputs)),
        Step(name="transpose to [in, out]", function=lambda fields: np.ascontiguousarray(fields.T)),
        Step(name="order 0 2 4 6 1 3 5 7", function=reorder),
        Step(name="join eight outputs to a word", function=lambda fields: words_of(fields, num_bits)),
    )


def _keep(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    return (Step(name="keep the words", function=lambda words: words),)


RELAYOUTS = (
    Relayout(
        source="awq-gemv",
        target="awq-gemm",
        widths=(4,),
        steps=_to_gemm,
        origin="follows from AutoAWQ modules/linear/gemm.py and gemv.py",
    ),
    Relayout(
        source="awq-gemv",
        target="compressed-tensors",
        widths=(4,),
        steps=_keep,
        origin="follows from both formats: the same words",
    ),
)
