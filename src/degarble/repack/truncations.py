"""Steps that are known to destroy codes, as functions of one signed code, and the codes that survive them.

The classic: a kernel that wants int4 in the high nibble of int8 shifts left by four, and then "protects" the range by
clipping to that of int4. For 4 bits

    code             -8 … -1     0     1 … 7
    int8(code << 4)  -128 … -16  0     16 … 112
    clip(-8, 7)      -8          0     7

so sixteen codes become three: the sign is all that is left. Without the clip the shift loses nothing. The clip belongs
before a shift, never after it.

A file shows such a step by its codes: those outside the image never occur, while a healthy module uses every code.
Right shifts and clips to a narrower range leave one half of the range empty; that is another rule's fault (WGT210).
"""

from __future__ import annotations

from functools import cache

import msgspec
import numpy as np

from degarble.checkpoint.tensor_data import Array


class Truncation(msgspec.Struct, frozen=True, kw_only=True):
    """One destructive step, as it shows in stored codes counted from 0."""

    name: str
    """As code: `clip(w << 4, -8, 7)`."""
    storage: str
    """How the result was stored: `excess`, `two's complement`, `unsigned`."""
    image: frozenset[int]
    """Stored codes that can still occur."""
    zero: int
    """The stored code that a code of zero becomes."""


def signed_codes(num_bits: int) -> Array:
    """[2**bits] int64: -2**(bits - 1) … 2**(bits - 1) - 1."""
    return np.arange(-(1 << (num_bits - 1)), 1 << (num_bits - 1), dtype=np.int64)


def shift_then_clip(codes: Array, num_bits: int, shift: int) -> Array:
    """clip(w << shift) to the range of signed codes: what the classic error does."""
    low, high = -(1 << (num_bits - 1)), (1 << (num_bits - 1)) - 1
    return np.asarray(np.clip(codes.astype(np.int64) << shift, low, high))


def shift_in_field(codes: Array, num_bits: int, shift: int) -> Array:
    """(w << shift) & mask, read as a signed field again: the highest bits fall off."""
    field = (codes.astype(np.int64) << shift) & ((1 << num_bits) - 1)
    return np.where(field >> (num_bits - 1), field - (1 << num_bits), field)


@cache
def truncations(num_bits: int) -> tuple[Truncation, ...]:
    """The known destructive steps, the most destructive first: at most half of the codes and one survive, with gaps."""
    codes, mask, half = signed_codes(num_bits), (1 << num_bits) - 1, 1 << (num_bits - 1)
    shifts = sorted({*range(1, num_bits), 4}, key=lambda shift: (shift != 4, shift))
    found = []
    for shift in shifts:
        clipped = shift_then_clip(codes, num_bits, shift)
        name = f"clip(w << {shift}, {-half}, {half - 1})"
        found.append(_truncation(name, "excess", clipped + half, half))
        found.append(_truncation(name, "two's complement", clipped & mask, 0))
        unsigned = np.minimum((codes + half) << shift, mask)
        found.append(_truncation(f"clip(w << {shift}, 0, {mask})", "unsigned", unsigned, 0))
        if shift < num_bits:
            moved = shift_in_field(codes, num_bits, shift)
            found.append(_truncation(f"(w << {shift}) & {mask}", "excess", moved + half, half))
    telling = [t for t in found if 2 <= len(t.image) <= half + 1 and max(t.image) - min(t.image) >= len(t.image)]
    return tuple(sorted({t.image: t for t in reversed(telling)}.values(), key=lambda t: len(t.image)))


def _truncation(name: str, storage: str, stored: Array, zero: int) -> Truncation:
    return Truncation(name=name, storage=storage, image=frozenset(int(code) for code in stored), zero=zero)
