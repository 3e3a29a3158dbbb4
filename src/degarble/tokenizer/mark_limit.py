"""At most 30 combining marks on one character, the limit of Unicode's stream-safe format (UAX #15, section 13).

Without it a stream might have to wait for the end of a text: a mark that comes late may belong before all others.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.change_log import ChangeLog
from degarble.tokenizer.code_points import SHORT, code_points, stretches, text_of
from degarble.tokenizer.edits import Edits
from degarble.tokenizer.normal_form_tables import EXTENDS, SIZE, tables
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy
from degarble.tokenizer.text_stage import TextStage

MAX_MARKS = 30


class MarkLimit(TextStage):
    """Drops (or rejects) marks beyond the thirtieth of one character, counted decomposed: NFC changes no count."""

    def __init__(self, policy: SanitizePolicy, log: ChangeLog, before: Sequence[TextStage] = ()) -> None:
        super().__init__(policy, log, before)
        self._size = 0  # characters of the last segment so far, decomposed

    def _num_to_hold(self, text: str) -> int:
        return 0

    def _work(self, text: str) -> str:
        if text.isascii() or (len(text) <= SHORT and not may_have_too_many_marks(text)):
            return self._unchanged(text)
        codes = code_points(text)
        traits = tables().traits.take(codes)
        extends = traits >= EXTENDS
        if not extends[0] and not _has_run_of_seven(extends):
            return self._unchanged(text)
        sizes = np.cumsum(traits & SIZE, dtype=np.int32)
        before = np.where(extends, -self._size, sizes - (traits & SIZE))  # size of all before the segment
        sizes -= np.maximum.accumulate(before)
        self._size = min(int(sizes[-1]), MAX_MARKS + 2)  # full is full
        too_many = extends & (sizes > MAX_MARKS + 1)
        if not too_many.any():
            return text
        starts, ends = stretches(too_many)
        if self._policy.nfc == "reject":
            self._reject(Kind.NFC, text, int(starts[0]), int(ends[0]))
        return self._changed(
            text,
            text_of(codes[~too_many]),
            {Kind.NFC: len(starts)},
            lambda: Edits.of_kind(Kind.NFC, starts, ends, np.zeros_like(starts)),
        )

    def _unchanged(self, text: str) -> str:
        start = len(text) - 1
        while text[start] in tables().extenders:
            start -= 1
        self._size = len(unicodedata.normalize("NFD", text[start:]))
        return text


def may_have_too_many_marks(text: str) -> bool:
    """Whether a text has to be looked at more closely, seen without arrays."""
    return text[0] in tables().extenders or tables().long_run.search(text) is not None


def _has_run_of_seven(extends: NDArray[np.bool_]) -> bool:
    """The least that may be too many: one is four characters decomposed, at most."""
    pairs = extends[:-1] & extends[1:]
    fours = pairs[:-2] & pairs[2:]
    return bool((fours[:-3] & fours[3:]).any())
