"""GGUF halves: a block of 32 codes in 16 bytes, the low nibbles are its first half and the high nibbles its second.

    byte j of a block:   7 | code 16 + j | code j | 0          uint8 [out, in / 2]        (Q4_0, excess 8)

Pairs, as MLX, NVFP4 or a naive packer store them, put codes 2j and 2j + 1 into byte j: read one as the other and every
code but two of a block is at a wrong place.

`q4-0-4x4` is what llama.cpp makes of four rows for its kernels: runs of four bytes from each row in turn, every byte
XOR 0x88. The XOR turns excess 8 into two's complement, so that the kernel's `(int8_t)(byte << 4)` *is* the signed code
times 16: a shift by four into the high nibble that is never clipped, and so loses nothing.

Sources: gguf-py `quants.py` (the oracle in the tests); llama.cpp `ggml/src/ggml-cpu/repack.cpp`, `make_block_q4_0x4`.
Only the codes are moved here; the scales of a block stand before them and are copied as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.interface import Layout, Relayout, Step, checked, fields_of, fitting, words_of

BLOCK = 32
HALF = 16
ROWS = 4
RUN = 4
"""Bytes that one row contributes in turn."""
SIGN = np.uint8(0x88)


class GgufHalves(Layout):
    """The codes of Q4_0 blocks."""

    name: ClassVar[str] = "gguf-halves"
    widths: ClassVar[tuple[int, ...]] = (4,)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """One block."""
        return 1, BLOCK

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> uint8 [out, in / 2]."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        stored = np.zeros((out, inputs // 2), np.uint8)
        for column in range(inputs):
            block, place = divmod(column, BLOCK)
            stored[:, block * HALF + place % HALF] |= codes[:, column] << np.uint8(4 * (place // HALF))
        return stored

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """uint8 [out, in / 2] -> [out, in]."""
        fitting(stored, (shape[0], shape[1] // 2), np.uint8, self.name)
        codes = np.empty(shape, np.uint8)
        for column in range(shape[1]):
            block, place = divmod(column, BLOCK)
            codes[:, column] = stored[:, block * HALF + place % HALF] >> np.uint8(4 * (place // HALF)) & np.uint8(15)
        return codes


class Q40Rows4(Layout):
    """Four rows of Q4_0 interleaved, two's complement."""

    name: ClassVar[str] = "q4-0-4x4"
    widths: ClassVar[tuple[int, ...]] = (4,)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """Four rows of one block."""
        return ROWS, BLOCK

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] -> uint8 [out / 4, in * 2]."""
        out, inputs = checked(codes, self.granule(num_bits), self.name)
        stored = np.zeros((out // ROWS, inputs * 2), np.uint8)
        for row, column, byte, shift in _places(inputs):
            stored[:, byte] |= (codes[row::ROWS, column] ^ np.uint8(8)) << np.uint8(shift)
        return stored

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """uint8 [out / 4, in * 2] -> [out, in]."""
        fitting(stored, (shape[0] // ROWS, shape[1] * 2), np.uint8, self.name)
        codes = np.empty(shape, np.uint8)
        for row, column, byte, shift in _places(shape[1]):
            codes[row::ROWS, column] = stored[:, byte] >> np.uint8(shift) & np.uint8(15) ^ np.uint8(8)
        return codes


def _places(inputs: int) -> list[tuple[int, int, int, int]]:
    """(row of four, column, byte, shift) of every code."""
    found = []
    for column in range(inputs):
        block, place = divmod(column, BLOCK)
        run, offset = divmod(place % HALF, RUN)
        for row in range(ROWS):
            byte = block * HALF * ROWS + (run * ROWS + row) * RUN + offset
            found.append((row, column, byte, 4 * (place // HALF)))
    return found


def _to_rows4(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    def interleave(stored: Array) -> Array:
        runs = stored.reshape(-1, ROWS, shape[1] // BLOCK, HALF // RUN, RUN)
        return np.ascontiguousarray(runs.transpose(0, 2, 3, 1, 4)).reshape(-1, shape[1] * 2)

    return (
        Step(name="interleave four rows in runs of four bytes", function=interleave),
        Step(name="XOR 0x88: excess 8 to two's complement", function=lambda stored: stored ^ SIGN),
    )


def _from_words(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def halves(fields: Array) -> Array:
        blocks = fields.reshape(out, inputs // BLOCK, 2, HALF)
        return np.asarray(blocks[:, :, 0] | blocks[:, :, 1] << np.uint8(4)).reshape(out, inputs // 2)

    return (
        Step(name="take fields apart", function=lambda words: fields_of(words, num_bits)),
        Step(name="first half low, second half high", function=halves),
    )


def _to_words(num_bits: int, shape: tuple[int, int]) -> Sequence[Step]:
    out, inputs = shape

    def apart(stored: Array) -> Array:
        blocks = stored.reshape(out, inputs // BLOCK, 1, HALF)
        return np.concatenate([blocks & np.uint8(15), blocks >> np.uint8(4)], axis=2).reshape(out, inputs)

    return (
        Step(name="low nibbles, then high nibbles", function=apart),
        Step(name="join eight inputs to a word", function=lambda f: words_of(f.reshape(out, inputs // 8, 8), num_bits)),
    )


RELAYOUTS = (
    Relayout(
        source="compressed-tensors",
        target="gguf-halves",
        widths=(4,),
        steps=_from_words,
        origin="follows from both formats",
    ),
    Relayout(
        source="gguf-halves",
        target="compressed-tensors",
        widths=(4,),
        steps=_to_words,
        origin="follows from both formats",
    ),
    Relayout(
        source="gguf-halves",
        target="q4-0-4x4",
        widths=(4,),
        steps=_to_rows4,
        origin="llama.cpp ggml/src/ggml-cpu/repack.cpp, make_block_q4_0x4",
    ),
)
