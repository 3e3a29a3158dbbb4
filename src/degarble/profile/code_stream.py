"""Integer codes as one stream of 16-bit units, in the order of inputs: what look-up tables can read.

    width 4    | c3 | c2 | c1 | c0 |      codes of 2 to 4 bits, four a unit
    width 8    |    c1   |    c0   |      codes of 5 to 8 bits, two a unit

Words that engines pack along the inputs are such a stream already, or become one by a transposition (GPTQ) or by a
look-up (2 and 3 bits). Codes of all other layouts are unpacked by their format and packed again.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.formats.agreement import bits_of, shape_of
from degarble.formats.interface import PAYLOAD, StoredModule
from degarble.formats.packing import WORD_BITS
from degarble.formats.slicing import GROUP_INDEX, group_size
from degarble.profile.code_groups import codes_from_zero, in_order

STREAMED_BITS = (2, 3, 4, 8)
"""Widths of words that become a stream without being unpacked."""


class CodeStream(msgspec.Struct, frozen=True):
    """The codes of some outputs."""

    units: Array
    """[outputs, units] uint16"""
    num_bits: int
    is_signed: bool
    """Whether stored codes were signed, and shifted up to count from 0."""
    is_stored: bool = False
    """Whether the units are those of the stored 32-bit words, row by row."""

    @property
    def width(self) -> int:
        """Bits that a code takes here."""
        return 4 if self.num_bits <= 4 else 8

    @property
    def last(self) -> int:
        """The highest code."""
        return (1 << self.num_bits) - 1

    def codes(self, units: Array) -> Array:
        """[..., units] uint16 -> [..., codes] uint8."""
        stored = np.ascontiguousarray(units).view(np.uint8)
        if self.width == 8:
            return stored
        return np.stack([stored & 15, stored >> 4], axis=-1).reshape(*stored.shape[:-1], -1)

    def at(self, places: Array) -> Array:
        """uint8 codes at flat places."""
        stored = self.units.reshape(-1).view(np.uint8)
        if self.width == 8:
            return stored[places]
        return np.asarray(stored[places // 2] >> (4 * (places % 2)).astype(np.uint8) & np.uint8(15))


def code_stream(stacked: StoredModule) -> CodeStream | None:
    """The codes of a module of two axes; None where rows are no whole units, or groups are of unequal sizes."""
    num_bits, inputs = bits_of(stacked), shape_of(stacked)[-1]
    if not 2 <= num_bits <= 8 or inputs % (4 if num_bits <= 4 else 2):
        return None
    words = _words_along_inputs(stacked, num_bits, inputs)
    if words is not None:
        return CodeStream(units_of_words(words, num_bits), num_bits, False, num_bits in (4, 8))
    codes, num_bits, is_signed = codes_from_zero(stacked)
    ordered = in_order([stacked], codes[None])
    if ordered is None or ordered.shape[2] != inputs:
        return None
    return CodeStream(units_of_codes(ordered[0], num_bits), num_bits, is_signed)


def _words_along_inputs(stacked: StoredModule, num_bits: int, inputs: int) -> Array | None:
    """[outputs, words] of whole words of codes in order; None for every other layout."""
    payload, axes = stacked.payload, stacked.format.axes[PAYLOAD]
    (output_axis, per_index), along = axes
    if payload is None or payload.dtype not in ("I32", "U32") or num_bits not in STREAMED_BITS:
        return None
    if along is None or along[1] != "words" or per_index != 1 or inputs % WORD_BITS or not _is_plain(stacked, inputs):
        return None
    words = stacked.array(PAYLOAD)
    words = words.T if output_axis > along[0] else words
    return np.ascontiguousarray(words) if words.shape[1] * WORD_BITS == inputs * num_bits else None


def _is_plain(stacked: StoredModule, inputs: int) -> bool:
    """Whether inputs are in order and as many as the headers say."""
    if stacked.part("shape") is not None:
        said = stacked.array("shape").reshape(-1)
        if not said.size or said[-1] != inputs:
            return False
    if stacked.part(GROUP_INDEX) is None:
        return True
    index, size = stacked.array(GROUP_INDEX), min(group_size(stacked), inputs)
    return index.shape == (inputs,) and bool((index == np.arange(inputs) // size).all())


def units_of_words(words: Array, num_bits: int) -> Array:
    """[outputs, words] of 32 bits -> [outputs, units] uint16; see packing.py for the order of bits."""
    if num_bits in (4, 8):
        return words.view("<u2")
    stored = words.view(np.uint8)
    if num_bits == 2:
        return np.asarray(_spread(2, 8)[stored])
    low, middle, high = (stored[:, at::3].astype(np.uint16) for at in range(3))  # 24 bits: eight codes
    units = np.empty((*low.shape, 2), np.uint16)
    _spread(3, 12).take(low | (middle & 15) << 8, out=units[..., 0])
    _spread(3, 12).take(middle >> 4 | high << 4, out=units[..., 1])
    return units.reshape(len(words), -1)


@lru_cache(maxsize=4)
def _spread(num_bits: int, length: int) -> Array:
    """`length` bits of narrow codes -> the unit of four codes that they are."""
    patterns = np.arange(1 << length, dtype=np.uint16)
    mask = np.uint16((1 << num_bits) - 1)
    units = np.zeros_like(patterns)
    for place in range(4):
        units |= (patterns >> np.uint16(place * num_bits) & mask) << np.uint16(4 * place)
    return units


def units_of_codes(codes: Array, num_bits: int) -> Array:
    """[outputs, inputs] uint8 -> [outputs, units] uint16."""
    pairs = np.ascontiguousarray(codes).view("<u2")
    if num_bits > 4:
        return pairs
    return np.asarray((pairs | pairs >> np.uint16(4)).astype(np.uint8).view("<u2"))
