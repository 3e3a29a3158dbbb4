"""E8M0: the scale of the MX formats, a bare exponent. byte b means 2 ** (b - 127); 255 is NaN; there is no zero.

Found as safetensors `F8_E8M0` and, more often, as plain `U8`: a reader that multiplies by the byte itself is 2 ** 120
wrong. Source: OCP Microscaling Formats 1.0, section 5.4.1.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array

DTYPES = frozenset({"U8", "F8_E8M0"})
"""safetensors dtypes under which exponent bytes are stored."""

BIAS = 127
NAN = 255


def decode(exponents: Array) -> Array:
    """Bytes -> float32 powers of two."""
    raw = np.ascontiguousarray(exponents).view(np.uint8)
    scales = np.ldexp(np.float32(1), np.where(raw == NAN, 0, raw.astype(np.int32) - BIAS))
    return np.asarray(np.where(raw == NAN, np.float32(np.nan), scales).astype(np.float32))


def encode(scales: Array) -> Array:
    """float32 scales -> bytes, rounded down to a power of two as compressed-tensors does. NaN is kept.

    Raises ValueError for a scale that is zero, negative or infinite, which has no byte.
    """
    wide = np.asarray(scales, np.float32)
    lost = ~np.isnan(wide) & ~((wide > 0) & np.isfinite(wide))
    if lost.any():
        raise ValueError(f"{wide[lost].flat[0]} is not a positive finite scale: E8M0 cannot hold it")
    _, exponent = np.frexp(np.where(np.isnan(wide), np.float32(1), wide))
    stored = np.clip(exponent - 1 + BIAS, 0, NAN - 1).astype(np.uint8)
    return np.asarray(np.where(np.isnan(wide), np.uint8(NAN), stored))
