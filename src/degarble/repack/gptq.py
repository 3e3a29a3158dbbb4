"""GPTQ: words along the input axis, [in * bits / 32, out].

    word r of output o, 4 bits:   31 | 8r+7 | 8r+6 | … | 8r+1 | 8r | 0        inputs of output o

3-bit codes form one stream of bits down a column: 32 codes in three words, two of them astride.

    to AWQ GEMM             fields apart, reorder, fields of eight outputs joined
    to compressed-tensors   the words are the same, the matrix is turned: [out, in * bits / 32]

Sources: AutoGPTQ `qlinear_cuda_old.py`; AutoAWQ `utils/packing_utils.py` (the way back from AWQ); compressed-tensors
`compressors/pack_quantized` (words along the input in natural order).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.awq_gemm import ORDER
from degarble.repack.interface import WORD_BITS, Layout, Relayout, Step, checked, fields_of, fitting, words_of


def stream_to_words(codes: Array, num_bits: int) -> Array:
    """[rows, n] codes -> [rows, n * bits / 32] words, code by code; a code may straddle two words."""
    words = np.zeros((codes.shape[0], codes.shape[1] * num_bits // WORD_BITS), np.uint64)
    for column in range(codes.shape[1]):
        word, offset = divmod(column * num_bits, WORD_BITS)
        moved = codes[:, column].astype(np.uint64) << np.uint64(offset)
        words[:, word] |= moved & np.uint64(0xFFFFFFFF)
        if offset + num_bits > WORD_BITS:
            words[:, word + 1] |= moved >> np.uint64(WORD_BITS)
    return np.ascontiguousarray(words.astype(np.uint32)).view(np.int32)


def words_to_stream(words: Array, num_bits: int, length: int) -> Array:
    """Undo `stream_to_words`."""
    wide = np.pad(np.ascontiguousarray(words).view(np.uint32).astype(np.uint64), ((0, 0), (0, 1)))
    codes = np.empty((words.shape[0], length), np.uint8)
    for column in range(length):
        word, offset = divmod(column * num_bits, WORD_BITS)
        pair = wide[:, word] | wide[:, word + 1] << np.uint64(WORD_BITS)
        codes[:, column] = (pair >> np.uint64(offset)) & np.uint64((1 << num_bits) - 1)
    return codes


class Gptq(Layout):
    """`qweight` of GPTQ."""

    name: ClassVar[str] = "gptq"
    widths: ClassVar[tuple[int, ...]] = (2, 3, 4, 8)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One word, or three at 3 bits."""
        return 1, WORD_BITS if num_bits == 3 else WORD_BITS // num_bits

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [in * bits / 32, out]."""
        checked(codes, self.granule(num_bits), self.name)
        return np.ascontiguousarray(stream_to_words(codes, num_bits).T)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [in * bits / 32, out] -> [out, in]."""
        fitting(stored, (shape[1] * num_bits // WORD_BITS, shape[0]), np.int32, self.name)
        return words_to_stream(stored.T, num_bits, shape[1])


def _to_awq(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def apart(words: Array) -> Array:
        return np.ascontiguousarray(fields_of(words, num_bits).transpose(0, 2, 1).reshape(inputs, out))

    def reorder(fields: Array) -> Array:
        return np.asarray(fields.reshape(inputs, out // len(ORDER), len(ORDER))[..., ORDER])

    return (
        Step(name="take fields apart, [in, out]", function=apart),
        Step(name="order 0 2 4 6 1 3 5 7", function=reorder),
        Step(name="join eight outputs to a word", function=lambda fields: words_of(fields, num_bits)),
    )


def _turn(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    return (Step(name="transpose the words", function=lambda words: np.ascontiguousarray(words.T)),)


RELAYOUTS = (
    Relayout(
        source="gptq",
        target="awq-gemm",
        widths=(4,),
        steps=_to_awq,
        origin="the reverse of AutoAWQ utils/packing_utils.py",
    ),
    Relayout(
        source="gptq",
        target="compressed-tensors",
        widths=(2, 3, 4, 8),
        steps=_turn,
        origin="follows from both formats: the same words",
    ),
)
