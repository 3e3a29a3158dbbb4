"""Characters that have no place in a prompt or an answer: removed, replaced or rejected by a policy."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.change_log import ChangeLog
from degarble.tokenizer.character_groups import Group, groups_of
from degarble.tokenizer.code_points import code_points, split_text, stretches, text_of
from degarble.tokenizer.edits import Edits
from degarble.tokenizer.sanitize_policy import KINDS, Kind, SanitizePolicy
from degarble.tokenizer.text_stage import TextStage
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

BLACK_FLAG = "\U0001f3f4"
MAX_FLAG_TAGS = 6
"""Subdivision flags spell a region of at most six letters and digits, then U+E007F."""
_FLAG = re.compile(f"({BLACK_FLAG}[\U000e0020-\U000e007e]{{1,{MAX_FLAG_TAGS}}}\U000e007f)")
_OPEN_FLAG = re.compile(f"{BLACK_FLAG}[\U000e0020-\U000e007e]{{0,{MAX_FLAG_TAGS}}}\\Z")


class HarmfulCharacters(TextStage):
    """Finds them by their groups (`character_groups`) and by what stands before them."""

    def __init__(self, policy: SanitizePolicy, log: ChangeLog, before: Sequence[TextStage] = ()) -> None:
        super().__init__(policy, log, before)
        self._groups = groups_of(policy)
        self._private_use_left = policy.max_private_use
        self._row = int(Group.HARMLESS)  # group of the row that reaches the end of what was taken
        self._has_flags = policy.hidden != "keep"

    def _num_to_hold(self, text: str) -> int:
        if not self._has_flags or text.isascii():
            return 0
        flag = _OPEN_FLAG.search(text, max(0, len(text) - MAX_FLAG_TAGS - 1))
        return len(text) - flag.start() if flag else 0

    def _work(self, text: str) -> str:
        if self._row == Group.HARMLESS and self._groups.is_clean_at_a_glance(text):
            self._row = int(self._groups.group_of[ord(text[-1])])
            return text
        codes = code_points(text)
        groups = self._groups.group_of.take(codes)
        counts = np.bincount(groups, minlength=len(Group))
        if counts[Group.HARMLESS] == len(text):
            self._row = Group.HARMLESS
            return text
        if counts[Group.TAG]:
            _spare_flags(text, groups)
        harmful = groups >= Group.CONTROL
        if counts[Group.PRIVATE_USE]:
            self._limit_private_use(groups, harmful)
        if self._row or counts[Group.ZERO_WIDTH] or counts[Group.VARIATION]:
            self._limit_rows(groups, harmful)
        if not harmful.any():
            return text
        groups[~harmful] = Group.HARMLESS
        if self._log.may_reject:
            self._check(text, groups)
        replaced = self._groups.is_replaced.take(groups)
        codes[replaced] = ord(REPLACEMENT_CHAR)
        out = text_of(codes[replaced | ~harmful])
        return self._changed(text, out, self._counts(groups), lambda: self._edits(groups))

    def _limit_private_use(self, groups: NDArray[np.uint8], harmful: NDArray[np.bool_]) -> None:
        found = (groups == Group.PRIVATE_USE).nonzero()[0]
        harmful[found[self._private_use_left :]] = True
        self._private_use_left = max(0, self._private_use_left - len(found))

    def _limit_rows(self, groups: NDArray[np.uint8], harmful: NDArray[np.bool_]) -> None:
        """Find characters that follow one of their own group, once those in between are removed."""
        staying = (~harmful | self._groups.is_replaced.take(groups)).nonzero()[0]
        if not staying.size:
            return
        rows = groups[staying]
        rows[rows > Group.VARIATION] = Group.HARMLESS
        again = (rows > Group.HARMLESS) & (rows == np.concatenate(([self._row], rows[:-1])))
        harmful[staying[again]] = True
        self._row = int(rows[-1])

    def _check(self, text: str, groups: NDArray[np.uint8]) -> None:
        rejected = self._groups.is_rejected.take(groups).nonzero()[0]
        if rejected.size:
            start = int(rejected[0])
            _, ends = stretches(groups[start:])
            self._reject(KINDS[self._groups.kinds[groups[start]]], text, start, start + int(ends[0]))

    def _counts(self, groups: NDArray[np.uint8]) -> dict[Kind, int]:
        """How many stretches of harmful characters there are, of each kind."""
        begins = np.concatenate(([True], groups[1:] != groups[:-1]))
        counts: Counter[Kind] = Counter()
        for group, count in enumerate(np.bincount(groups[begins]).tolist()):
            if group and count:
                counts[KINDS[self._groups.kinds[group]]] += count
        return counts

    def _edits(self, groups: NDArray[np.uint8]) -> Edits:
        """One for each of these stretches."""
        starts, ends = stretches(groups)
        found = groups[starts]
        sizes = np.where(self._groups.is_replaced[found], ends - starts, 0)
        return Edits.sized(starts, ends, sizes, self._groups.kinds[found])


def _spare_flags(text: str, groups: NDArray[np.uint8]) -> None:
    """Tags are harmless in a flag."""
    _, ends = split_text(_FLAG, text)
    steps = np.zeros(len(text) + 1, np.int8)
    steps[ends[:-1:2] + 1] = 1  # the flag itself is harmless, and may stand right after another
    steps[ends[1::2]] -= 1
    groups[np.cumsum(steps[:-1]) > 0] = Group.HARMLESS
