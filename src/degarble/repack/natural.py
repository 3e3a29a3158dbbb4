"""The codes themselves: uint8 [out, in], one to a byte. What a function sees that works on unpacked codes."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.repack.interface import Layout, checked


class Natural(Layout):
    """One code a byte; any integer dtype is accepted back."""

    name: ClassVar[str] = "codes"
    widths: ClassVar[tuple[int, ...]] = (2, 3, 4, 8)

    def granule(self, num_bits: int) -> tuple[int, int]:
        """Any shape does; four rows of eight show neighbours in both directions."""
        return 4, 8

    def pack(self, codes: Array, num_bits: int) -> Array:
        """[out, in] uint8, copied."""
        checked(codes, (1, 1), self.name)
        return np.array(codes, np.uint8)

    def unpack(self, stored: Array, num_bits: int, shape: tuple[int, int]) -> Array:
        """The values modulo 2**bits, so that -8..7 and 8..15, 0..7 are the same fields. Raises ValueError beyond."""
        if stored.shape != shape or not np.issubdtype(stored.dtype, np.integer):
            raise ValueError(f"codes: expected integers {list(shape)}, found {stored.dtype.name} {list(stored.shape)}")
        low, high = int(stored.min(initial=0)), int(stored.max(initial=0))
        if low < -(1 << (num_bits - 1)) or high >= 1 << num_bits:
            raise ValueError(f"codes: {low}..{high} are no codes of {num_bits} bits")
        return np.asarray(stored.astype(np.int64) & ((1 << num_bits) - 1)).astype(np.uint8)
