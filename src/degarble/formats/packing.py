"""Integers packed into 32-bit words, least significant first, along the last axis.

    4 bits:  | c7 | c6 | c5 | c4 | c3 | c2 | c1 | c0 |      3 bits: a code may straddle two words, since the
             31                                    0               codes form one unbroken stream of bits

Codes are masked before they are packed: an unmasked 16 in a 4-bit word would spill into its neighbour.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

WORD_BITS = 32


def num_words(length: int, num_bits: int) -> int:
    """Words that hold `length` codes: ceil(length * num_bits / 32)."""
    return -(-length * num_bits // WORD_BITS)


def pack_words(codes: Array, num_bits: int) -> Array:
    """Pack unsigned codes along the last axis: [..., n] -> [..., ceil(n * bits / 32)] int32.

    Raises ValueError for a code outside [0, 2**num_bits) or a width outside 1..8.
    """
    _check_width(num_bits)
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= 1 << num_bits):
        raise ValueError(f"codes must be in [0, {1 << num_bits}), found {codes.min()}..{codes.max()}")
    length = codes.shape[-1]
    words = num_words(length, num_bits)
    bits = np.zeros((*codes.shape[:-1], words * WORD_BITS), np.uint8)
    planes = (codes[..., None].astype(np.uint8) >> np.arange(num_bits, dtype=np.uint8)) & 1
    bits[..., : length * num_bits] = planes.reshape(*codes.shape[:-1], length * num_bits)
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u4").view("<i4")


def unpack_words(words: Array, num_bits: int, length: int) -> Array:
    """Undo `pack_words`: [..., w] 32-bit words -> [..., length] uint8. Raises ValueError if they do not fit."""
    _check_width(num_bits)
    if words.shape[-1] != num_words(length, num_bits):
        raise ValueError(
            f"{length} codes of {num_bits} bits need {num_words(length, num_bits)} words, found {words.shape[-1]}"
        )
    if 8 % num_bits == 0:
        return _unpack_bytes(np.ascontiguousarray(words).view(np.uint8), num_bits)[..., :length]
    bits = np.unpackbits(np.ascontiguousarray(words).view(np.uint8), axis=-1, bitorder="little")
    bits = bits[..., : length * num_bits].reshape(*words.shape[:-1], length, num_bits)
    return np.asarray((bits << np.arange(num_bits, dtype=np.uint8)).sum(axis=-1, dtype=np.uint8))


def _unpack_bytes(stored: Array, num_bits: int) -> Array:
    """Widths that divide a byte: its bits are moved apart, half of them at a time, in a number with a byte a code.

    |       dcba | -> |   dc |   ba | -> | d | c | b | a |      ten times as fast as unpacking bits
    """
    if num_bits == 1:
        return np.unpackbits(stored, axis=-1, bitorder="little")
    codes = 8 // num_bits
    wide = stored.astype(f"<u{codes}")
    kind, width = wide.dtype.type, 4
    while width >= num_bits:
        lane = width * codes
        wide |= wide << kind(lane - width)
        wide &= kind(sum(((1 << width) - 1) << at for at in range(0, 8 * codes, lane)))
        width //= 2
    return wide.view(np.uint8)


def _check_width(num_bits: int) -> None:
    if not 1 <= num_bits <= 8:
        raise ValueError(f"num_bits must be 1..8, found {num_bits}")
