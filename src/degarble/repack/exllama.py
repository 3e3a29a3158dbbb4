"""ExLlama-style shuffle: inside each GPTQ word even codes move to the low half, odd ones to the high half.

A GPU reads two halves at once, so code 2i and code 2i + 1 must lie 16 bits apart:

    4 bits   31 | 7 | 5 | 3 | 1 | 6 | 4 | 2 | 0 | 0
    2 bits   31 | 15 | 13 | … | 3 | 1 | 14 | 12 | … | 2 | 0 | 0
    8 bits   as it was
    3 bits   three words of the stream hold 32 codes; word j takes codes 10j .. 10j + 9 as above (five even ones in bits
             0-14, five odd ones in bits 16-30), and its free bits 15 and 31 take bit j of codes 30 and 31

Sources: vLLM `csrc/quantization/gptq/qdq_{2,3,4,8}.cuh` (from ExLlamaV2). Act-order first sorts rows there
(`make_sequential`); that moves whole codes and is not covered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.interface import WORD_BITS, Layout, Relayout, Step, checked, fitting

HALF = 16
LOOSE = 30
"""3 bits: codes 30 and 31 are spread over the three words."""


def positions(num_bits: int) -> list[list[tuple[int, int]]]:
    """For every code of a granule the (word, bit) of each of its bits, least significant first."""
    if num_bits == 8:
        return [[(0, 8 * code + bit) for bit in range(8)] for code in range(4)]
    if num_bits != 3:
        return [
            [(0, HALF * (code % 2) + code // 2 * num_bits + bit) for bit in range(num_bits)]
            for code in range(WORD_BITS // num_bits)
        ]
    tight = [[(code // 10, HALF * (code % 2) + code % 10 // 2 * 3 + bit) for bit in range(3)] for code in range(LOOSE)]
    return [*tight, [(word, 15) for word in range(3)], [(word, 31) for word in range(3)]]


class ExLlama(Layout):
    """Shuffled `qweight`, [in * bits / 32, out]."""

    name: ClassVar[str] = "exllama"
    widths: ClassVar[tuple[int, ...]] = (2, 3, 4, 8)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One word, or three at 3 bits."""
        return 1, WORD_BITS if num_bits == 3 else WORD_BITS // num_bits

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> int32 [in * bits / 32, out], bit by bit."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        words = np.zeros((inputs * num_bits // WORD_BITS, out), np.uint32)
        for column, word, bit, place in self._bits(num_bits, inputs):
            words[word] |= (codes[:, column].astype(np.uint32) >> np.uint32(bit) & np.uint32(1)) << np.uint32(place)
        return words.view(np.int32)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """int32 [in * bits / 32, out] -> [out, in], bit by bit."""
        out, inputs = shape
        words = fitting(stored, (inputs * num_bits // WORD_BITS, out), np.int32, self.name).view(np.uint32)
        codes = np.zeros(shape, np.uint32)
        for column, word, bit, place in self._bits(num_bits, inputs):
            codes[:, column] |= (words[word] >> np.uint32(place) & np.uint32(1)) << np.uint32(bit)
        return codes.astype(np.uint8)

    def _bits(self, num_bits: int, inputs: int) -> list[tuple[int, int, int, int]]:
        """(column, word, bit of the code, bit of the word) of every bit."""
        places = positions(num_bits)
        step = len(places) * num_bits // WORD_BITS
        return [
            (column, column // len(places) * step + word, bit, place)
            for column in range(inputs)
            for bit, (word, place) in enumerate(places[column % len(places)])
        ]


def _split(words: Array, num_bits: int, pairs: int) -> Array:
    """Even fields to the low half, odd ones to the high half; the rest of the word is dropped."""
    mask, moved = np.uint32((1 << num_bits) - 1), np.zeros_like(words)
    for pair in range(pairs):
        moved |= (words & mask) << np.uint32(pair * num_bits)
        moved |= (words >> np.uint32(num_bits) & mask) << np.uint32(pair * num_bits + HALF)
        words = words >> np.uint32(2 * num_bits)
    return moved


def _realigned(words: Array) -> Array:
    """[3n, out] words of a 3-bit stream -> [4n, out]: ten codes in each of three words, two in the fourth."""
    first, second, third = (words.view(np.uint32)[word::3] for word in range(3))
    aligned = np.stack(
        [first, second << np.uint32(2) | first >> np.uint32(30), third << np.uint32(4) | second >> np.uint32(28),
         third >> np.uint32(26)],
        axis=1,
    )  # fmt: skip
    return aligned.reshape(-1, words.shape[1])


def _spread(aligned: Array) -> Array:
    """[4n, out] -> [3n, out]: split each word's ten codes, and lay the loose two into bits 15 and 31."""
    groups = aligned.reshape(-1, 4, aligned.shape[1])
    halves, loose = _split(groups[:, :3], 3, 5), groups[:, 3]
    for word in range(3):
        halves[:, word] |= (loose >> np.uint32(word) & np.uint32(1)) << np.uint32(15)
        halves[:, word] |= (loose >> np.uint32(word + 3) & np.uint32(1)) << np.uint32(31)
    return halves.reshape(-1, aligned.shape[1]).view(np.int32)


def _shuffle(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    if num_bits == 8:
        return (Step(name="keep the words", function=lambda words: words),)
    if num_bits == 3:
        return (
            Step(name="ten codes to a word", function=_realigned),
            Step(name="even codes low, odd codes high, loose bits at 15 and 31", function=_spread),
        )
    pairs = HALF // num_bits

    def split(words: Array) -> Array:
        return _split(words.view(np.uint32), num_bits, pairs).view(np.int32)

    return (Step(name="even codes low, odd codes high", function=split),)


def _unshuffle(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    mask = np.uint32((1 << num_bits) - 1)

    def merge(words: Array) -> Array:
        stored, merged = words.view(np.uint32), np.zeros(words.shape, np.uint32)
        for pair in range(HALF // num_bits):
            low, high = np.uint32(pair * num_bits), np.uint32(pair * num_bits + HALF)
            merged |= (stored >> low & mask) << np.uint32(2 * pair * num_bits)
            merged |= (stored >> high & mask) << np.uint32((2 * pair + 1) * num_bits)
        return merged.view(np.int32)

    return (Step(name="low and high halves back in turn", function=merge),)


RELAYOUTS = (
    Relayout(
        source="gptq",
        target="exllama",
        widths=(2, 3, 4, 8),
        steps=_shuffle,
        origin="vLLM csrc/quantization/gptq/qdq_2, qdq_3, qdq_4, qdq_8.cuh, without act-order",
    ),
    Relayout(
        source="exllama",
        target="gptq",
        widths=(2, 4),
        steps=_unshuffle,
        origin="the reverse of qdq_2.cuh and qdq_4.cuh",
    ),
)
