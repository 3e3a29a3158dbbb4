"""Floating-point numbers judged by their bits, without widening them.

Adding an unsigned number to itself drops the sign: u + u grows with the magnitude. One maximum over u + u then answers
three questions at once, at the speed of memory:

    bf16   s eeeeeeee mmmmmmm       u + u = 0         zero, of either sign
                                    < 2 * 0x0080      subnormal
                                    >= 2 * 0x7f80     infinity or NaN
                                    max / 2           the bits of the largest magnitude

E4M3FN has no infinity, only 0x7f and 0xff. The FNUZ types keep their one NaN where minus zero would be, and E8M0 has
neither sign nor zero: both go through a table of 256 16-bit entries that restores the order above.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from degarble.checkpoint.tensor_data import DTYPES, Array

GGUF_FLOATS = {"GGUF:F32": "F32", "GGUF:F16": "F16", "GGUF:BF16": "BF16", "GGUF:F64": "F64"}


@dataclass(frozen=True, slots=True, eq=False)
class FloatBits:
    """How to read the magnitude of one dtype off its bits."""

    dtype: str
    unsigned: np.dtype[Any]
    """Unsigned integers of the same width."""
    sign: int
    nonfinite: int
    """Smallest doubled pattern that is infinity or NaN."""
    normal: int
    """Smallest doubled pattern of a normal number."""
    table: Array | None = None
    """Pattern -> doubled pattern, where u + u would not do."""

    def doubled(self, patterns: Array, out: Array | None = None) -> Array:
        """Twice the magnitude's bits; a number's order, zero for zero."""
        if self.table is not None:
            return np.asarray(self.table[patterns])
        return np.add(patterns, patterns, out=out)

    @property
    def has_sign(self) -> bool:
        """E8M0 alone has none: every pattern is a positive number or NaN."""
        return self.sign < 1 << (8 * self.unsigned.itemsize)

    def twice(self, pattern: int) -> int:
        """`doubled` of one pattern of a positive number."""
        return int(self.table[pattern & 0xFF]) if self.table is not None else 2 * pattern

    def magnitude(self, doubled: int) -> float:
        """The number whose doubled pattern this is."""
        pattern = doubled // 2 if self.table is None else int(np.flatnonzero(self.table == doubled)[0])
        return abs(float(np.array([pattern], self.unsigned).view(DTYPES[self.dtype])[0]))

    def values(self, patterns: Array) -> Array:
        """float64 values."""
        stored = np.ascontiguousarray(patterns).view(DTYPES[self.dtype])
        return stored.astype(np.float32).astype(np.float64) if self.dtype != "F64" else stored


def _ieee(dtype: str, exponent_bits: int, mantissa_bits: int) -> FloatBits:
    width = 1 + exponent_bits + mantissa_bits
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    return FloatBits(dtype, np.dtype(f"u{width // 8}"), 1 << (width - 1), 2 * infinity, 2 << mantissa_bits)


def _fnuz(dtype: str, mantissa_bits: int) -> FloatBits:
    table = 2 * (np.arange(256, dtype=np.uint16) & 0x7F)
    table[0x80] = 0xFFFF
    return FloatBits(dtype, np.dtype("u1"), 0x80, 0xFFFF, 2 << mantissa_bits, table)


def _e8m0() -> FloatBits:
    table = 2 * (np.arange(256, dtype=np.uint16) + 1)
    table[255] = 0xFFFF
    return FloatBits("F8_E8M0", np.dtype("u1"), 0x100, 0xFFFF, 2, table)


FLOAT_BITS: Mapping[str, FloatBits] = {
    bits.dtype: bits
    for bits in (
        _ieee("BF16", 8, 7),
        _ieee("F16", 5, 10),
        _ieee("F32", 8, 23),
        _ieee("F64", 11, 52),
        _ieee("F8_E5M2", 5, 2),
        FloatBits("F8_E4M3", np.dtype("u1"), 0x80, 0xFE, 2 << 3),
        _fnuz("F8_E4M3FNUZ", 3),
        _fnuz("F8_E5M2FNUZ", 2),
        _e8m0(),
    )
}


def float_bits(dtype: str) -> FloatBits | None:
    """The entry of a safetensors or plain GGUF dtype; None if it is no float."""
    return FLOAT_BITS.get(GGUF_FLOATS.get(dtype, dtype))
