"""A string as an array of code points and back, by copying memory.

An encoder would do the same but for halves of surrogate pairs, where Python calls its error handler once for each.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

CodePoints = NDArray[np.uint32]
Positions = NDArray[np.int64]
SHORT = 1024
"""Texts up to here are better looked at without arrays: to set some up takes longer."""


def code_points(text: str) -> CodePoints:
    """The code points of a text that is not empty."""
    return np.array([text]).view(np.uint32)


def text_of(codes: CodePoints) -> str:
    """The text of these code points, halves of surrogate pairs included."""
    if not codes.size:
        return ""
    text = str(np.ascontiguousarray(codes).view(f"U{codes.size}").item())
    return text.ljust(codes.size, "\0")  # NumPy takes zeros at the end for padding


def one_of(is_member: NDArray[np.bool_]) -> str:
    """A character class of a regular expression, from a table over all code points.

    Above U+FFFF it has all from the first member to the last: there `re` walks a list of ranges, one by one.
    """
    is_member, high = is_member.copy(), 0x10000 + is_member[0x10000:].nonzero()[0]
    if high.size:
        is_member[high[0] : high[-1]] = True
    firsts, ends = stretches(is_member)
    pairs = zip(firsts.tolist(), (ends - 1).tolist(), strict=True)
    members = "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in pairs)
    return f"[{members}]" if members else "(?!)"


def stretches(values: NDArray[Any]) -> tuple[Positions, Positions]:
    """Starts and ends of stretches of one value that is not zero."""
    padded = np.concatenate((values[:1] * 0, values, values[:1] * 0))
    edges = (padded[1:] != padded[:-1]).nonzero()[0]
    starts, ends = edges[:-1], edges[1:]
    is_found = values[starts] != 0
    return starts[is_found], ends[is_found]


def split_text(pattern: re.Pattern[str], text: str) -> tuple[list[str], Positions]:
    """Text, match, text … for a pattern that is one group; and where each ends."""
    pieces = pattern.split(text)
    return pieces, np.cumsum(np.fromiter(map(len, pieces), np.int64))
