"""How often each 16-bit unit of a stream of codes occurs: their histogram, and what follows a code 0, without unpacking.

    word of 4-bit codes    | c7 | c6 | c5 | c4 | c3 | c2 | c1 | c0 |
                           |     high unit     |     low unit      |

Of the seven neighbours in a word, six lie inside a unit; c3 and c4 alone are looked at in the words.
"""

from __future__ import annotations

import numpy as np

from degarble.checkpoint.tensor_data import Array
from degarble.profile.code_stream import CodeStream

Spill = tuple[int, int]
"""Codes 0 that another code of their word follows, and how often that one is odd."""


def unit_counts(indices: Array) -> Array:
    """[256, 256] by high and low byte."""
    return np.bincount(indices, minlength=1 << 16).reshape(256, 256)


def histogram(counts: Array, stream: CodeStream) -> Array:
    """[levels]"""
    found = _bytes(counts)
    if stream.width == 4:
        by_nibble = found.reshape(16, 16)
        found = by_nibble.sum(axis=0) + by_nibble.sum(axis=1)
    return np.asarray(found[: 1 << stream.num_bits])


def _bytes(counts: Array) -> Array:
    return np.asarray(counts.sum(axis=0) + counts.sum(axis=1))


def spill_of_stream(counts: Array, stream: CodeStream) -> Spill:
    """Of 4-bit codes whose stream is the stored words themselves."""
    words = stream.units.reshape(-1).view("<u4")
    by_nibble = _bytes(counts).reshape(16, 16)  # [second, first] of a byte
    last_zeros = int(np.count_nonzero(words < np.uint32(1 << 28)))
    across = int(np.count_nonzero(words & np.uint32(0x1F000) == np.uint32(0x10000)))
    zeros = int(by_nibble[:, 0].sum() + by_nibble[0].sum()) - last_zeros
    return zeros, int(by_nibble[1::2, 0].sum() + counts[1::2, :16].sum()) + across
