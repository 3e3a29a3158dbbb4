"""AWQ GEMM: words along the output axis, [in, out / 8], eight outputs in the order one GPU instruction likes.

    one word:   31 | o+7 | o+5 | o+3 | o+1 | o+6 | o+4 | o+2 | o | 0          field n holds output ORDER[n]

    to GPTQ (and so to ExLlama)   fields apart, back into order, fields of eight inputs joined
    to AWQ GEMV                   the same, turned: [out, in / 8]

Sources: AutoAWQ `utils/packing_utils.py` (orders, `unpack_reorder_pack`), `modules/linear/gemv.py` (natural order).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.interface import Layout, Relayout, Step, checked, fields_of, fitting, words_of

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Field n of a word holds output ORDER[n] of its eight."""

REVERSE = (0, 4, 1, 5, 2, 6, 3, 7)
"""Output c of eight lies in field REVERSE[c]."""

PACKED = 8


class AwqGemm(Layout):
    """`qweight` of AWQ, version gemm."""

    name: ClassVar[str] = "awq-gemm"
    widths: ClassVar[tuple[int, ...]] = (4,)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """Eight outputs, one input."""
        return PACKED, 1

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [in, out / 8]."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        words = np.zeros((inputs, out // PACKED), np.uint32)
        for output in range(out):
            words[:, output // PACKED] |= codes[output].astype(np.uint32) << np.uint32(4 * REVERSE[output % PACKED])
        return words.view(np.int32)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [in, out / 8] -> [out, in]."""
        words = fitting(stored, (shape[1], shape[0] // PACKED), np.int32, self.name).view(np.uint32)
        codes = np.empty(shape, np.uint8)
        for output in range(shape[0]):
            codes[output] = words[:, output // PACKED] >> np.uint32(4 * REVERSE[output % PACKED]) & np.uint32(15)
        return codes


def _in_order(num_bits: int, shape: tuple[int, int]) -> tuple[Step, Step]:
    out, inputs = shape
    return (
        Step(name="take fields apart", function=lambda words: fields_of(words, num_bits)),
        Step(name="undo order 0 2 4 6 1 3 5 7", function=lambda f: np.asarray(f[..., REVERSE]).reshape(inputs, out)),
    )


def _to_gptq(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def join(fields: Array) -> Array:
        return words_of(fields.reshape(inputs // PACKED, PACKED, out).transpose(0, 2, 1), num_bits)

    return (*_in_order(num_bits, shape), Step(name="join eight inputs to a word", function=join))


def _to_gemv(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def join(fields: Array) -> Array:
        return words_of(fields.reshape(out, inputs // PACKED, PACKED), num_bits)

    return (
        *_in_order(num_bits, shape),
        Step(name="transpose to [out, in]", function=lambda fields: np.ascontiguousarray(fields.T)),
        Step(name="join eight inputs to a word", function=join),
    )


RELAYOUTS = (
    Relayout(
        source="awq-gemm",
        target="gptq",
        widths=(4,),
        steps=_to_gptq,
        origin="AutoAWQ utils/packing_utils.py, unpack_reorder_pack",
    ),
    Relayout(
        source="awq-gemm",
        target="awq-gemv",
        widths=(4,),
        steps=_to_gemv,
        origin="follows from AutoAWQ modules/linear/gemm.py and gemv.py",
    ),
)
