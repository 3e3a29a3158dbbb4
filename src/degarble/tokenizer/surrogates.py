"""Halves of UTF-16 pairs in a Python string, as `json.loads` of a half-escaped emoji leaves them."""

from __future__ import annotations

import numpy as np

from degarble.tokenizer.code_points import CodePoints, code_points, text_of
from degarble.tokenizer.edits import Edits
from degarble.tokenizer.sanitize_policy import Kind
from degarble.tokenizer.text_stage import TextStage

_HALF = np.uint32(0x3FF)
"""Bits that one half carries."""


class SurrogatePairs(TextStage):
    """Joins pairs. Lone halves are left to the next stage, which knows what to do with them."""

    def _num_to_hold(self, text: str) -> int:
        return int("\ud800" <= text[-1] <= "\udbff")

    def _work(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            return self._joined(text)
        return text

    def _joined(self, text: str) -> str:
        codes = code_points(text)
        halves = codes & ~_HALF
        highs = ((halves[:-1] == 0xD800) & (halves[1:] == 0xDC00)).nonzero()[0]
        if not highs.size:
            return text
        joined, stays = codes.copy(), np.ones(len(codes), np.bool_)
        joined[highs] = join_pairs(codes[highs], codes[highs + 1])
        stays[highs + 1] = False
        kind = Kind.SURROGATE
        return self._changed(
            text,
            text_of(joined[stays]),
            {kind: len(highs)},
            lambda: Edits.of_kind(kind, highs, highs + 2, np.ones_like(highs)),
        )


def join_pairs(highs: CodePoints, lows: CodePoints) -> CodePoints:
    """The characters that high and low surrogates stand for."""
    return np.uint32(0x10000) + ((highs & _HALF) << np.uint32(10)) + (lows & _HALF)
