"""compressed-tensors `pack-quantized`: one dense stream of bits a row, [out, ceil(in * bits / 32)].

    word r of output o, 4 bits:   31 | 8r+7 | 8r+6 | … | 8r+1 | 8r | 0

The tool writes signed codes plus 2**(bits - 1). At 3 bits 32 codes fill three words and two codes straddle; the last
word of a row may be partly empty. Source: compressed-tensors `compressors/pack_quantized`, whose own functions are the
oracle in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.gptq import stream_to_words, words_to_stream
from degarble.repack.interface import WORD_BITS, Layout, Relayout, Step, checked, fitting


class CompressedTensors(Layout):
    """`weight_packed` of compressed-tensors."""

    name: ClassVar[str] = "compressed-tensors"
    widths: ClassVar[tuple[int, ...]] = (2, 3, 4, 8)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One word, or three at 3 bits."""
        return 1, WORD_BITS if num_bits == 3 else WORD_BITS // num_bits

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [out, in * bits / 32]."""
        checked(codes, self.granule(num_bits), self.name)
        return stream_to_words(codes, num_bits)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [out, in * bits / 32] -> [out, in]."""
        fitting(stored, (shape[0], shape[1] * num_bits // WORD_BITS), np.int32, self.name)
        return words_to_stream(stored, num_bits, shape[1])


def _turn(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    return (Step(name="transpose the words", function=lambda words: np.ascontiguousarray(words.T)),)


RELAYOUTS = (
    Relayout(
        source="compressed-tensors",
        target="gptq",
        widths=(2, 3, 4, 8),
        steps=_turn,
        origin="follows from both formats; vLLM turns it so before gptq_marlin_repack",
    ),
)
