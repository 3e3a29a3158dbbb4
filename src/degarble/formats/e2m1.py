"""E2M1: the 4-bit float of NVFP4 and MXFP4, two codes a byte.

    code   s e e m     s 00 m  -> 0, 0.5      byte  | hi nibble | lo nibble |
           3 2 1 0     s 01 m  -> 1, 1.5             code[2i+1]   code[2i]      the low nibble comes first
                       s 10 m  -> 2, 3
                       s 11 m  -> 4, 6        (no infinity, no NaN; code 8 is minus zero)

Source: OCP Microscaling Formats 1.0, section 5.3.3. Rounding is to nearest, ties to the even code, as
compressed-tensors and the hardware conversion do.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

MAX = 6.0

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)
"""code -> value."""

VALUES_WITHOUT_MINUS_ZERO = VALUES + np.float32(0)
"""ModelOpt's own table reads code 8 as plus zero."""


def unpack(packed: Array) -> Array:
    """[..., n] bytes -> [..., 2 n] codes 0..15."""
    raw = np.ascontiguousarray(packed).view(np.uint8)
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(*raw.shape[:-1], raw.shape[-1] * 2)


def pack(codes: Array) -> Array:
    """[..., 2 n] codes -> [..., n] bytes. Raises ValueError for an odd length or a code above 15."""
    if codes.shape[-1] % 2:
        raise ValueError(f"two codes share a byte: {codes.shape[-1]} codes in a row is odd")
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) > 15):
        raise ValueError(f"codes must be in [0, 16), found {codes.min()}..{codes.max()}")
    nibbles = codes.astype(np.uint8)
    return np.asarray(nibbles[..., 0::2] | nibbles[..., 1::2] << 4)


def encode(values: Array) -> Array:
    """Nearest codes; beyond 6 saturates. A NaN has no code: ValueError."""
    if np.isnan(values).any():
        raise ValueError("E2M1 has no NaN")
    size = np.abs(values)
    codes = np.zeros(values.shape, np.uint8)
    for middle in (0.25, 1.25, 2.5, 5.0):  # the tie goes down, to an even code
        codes += size > middle
    for middle in (0.75, 1.75, 3.5):  # the tie goes up, to an even code
        codes += size >= middle
    return np.asarray(codes | np.signbit(values).astype(np.uint8) << 3)
