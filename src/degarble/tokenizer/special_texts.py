"""The text of special tokens inside text: a user who types `<|im_end|>` must not end the turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from degarble.tokenizer.change_log import ChangeLog
from degarble.tokenizer.code_points import Positions, split_text
from degarble.tokenizer.edits import Edits
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy
from degarble.tokenizer.text_stage import TextStage
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR


class SpecialText(NamedTuple):
    """Where the text of a special token stands; half-open, in code points of the text as given out."""

    start: int
    end: int
    token: str


class SpecialTextFinder:
    """Finds the leftmost longest of many that begin alike: DeepSeek-V3 has 818."""

    def __init__(self, tokens: Iterable[str]) -> None:
        known = sorted(set(tokens))
        self._known = known
        self._first_chars = frozenset(token[0] for token in known)
        self._max_held = max(map(len, known), default=1) - 1
        self._pattern = re.compile(f"({_longest_of(known) if known else '(?!)'})")

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return frozenset(token[:length] for token in self._known for length in range(1, len(token)))

    @cached_property
    def _last_chars(self) -> frozenset[str]:
        return frozenset(beginning[-1] for beginning in self._beginnings)

    def find(self, text: str, start: int = 0) -> int:
        """Where the first begins from some place on; -1 if there is none, as in `str.find`."""
        found = self._pattern.search(text, start)
        return found.start() if found else -1

    def find_all(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of each, apart from each other."""
        return (found.span() for found in self._pattern.finditer(text))

    def is_in(self, text: str) -> bool:
        """Whether there is any; soon answered where no character begins one."""
        return any(char in text for char in self._first_chars) and self.find(text) >= 0

    def split(self, text: str, before: int) -> tuple[list[str], Positions]:
        """Text, token, text …, and where each ends: up to `before`, or to the end of a token that begins before it."""
        pieces, ends = split_text(self._pattern, text)
        num_found = int(np.searchsorted(ends[:-1:2], before))  # a token begins where the text before it ends
        done = int(ends[2 * num_found - 1]) if num_found else 0
        cut = max(before, done)
        return [*pieces[: 2 * num_found], text[done:cut]], np.append(ends[: 2 * num_found], cut)

    def num_held(self, text: str) -> int:
        """Characters at the end that may be the beginning of a token."""
        if not text or text[-1] not in self._last_chars:
            return 0
        for length in range(min(self._max_held, len(text)), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


MAX_DEPTH = 40
"""Forks on the way through one token; Python's compiler of expressions is recursive."""


def _longest_of(tokens: Sequence[str], depth: int = 0) -> str:
    """An expression for the longest of sorted tokens: a tree, and characters that go on alike are one branch of it.

    So a common beginning is read once, and the 6,242 `<unused0>` … of Gemma 3 are a few classes of digits.
    """
    size = len(tokens[0])
    while not tokens[-1].startswith(tokens[0][:size]):  # the first and the last differ most
        size -= 1
    common = re.escape(tokens[0][:size])
    if len(tokens) == 1:
        return common
    if depth == MAX_DEPTH:
        return f"(?:{'|'.join(map(re.escape, reversed(tokens)))})"  # a token sorts before what it begins
    branches: dict[str, str] = {}
    for char, group in groupby([token[size:] for token in tokens if len(token) > size], key=itemgetter(0)):
        rest = _longest_of([token[1:] for token in group], depth + 1)
        branches[rest] = branches.get(rest, "") + re.escape(char)
    either = "|".join(f"[{chars}]{rest}" for rest, chars in branches.items())
    return f"{common}(?:{either})" + ("?" if len(tokens[0]) == size else "")


@lru_cache(maxsize=32)
def finder_of(tokens: tuple[str, ...]) -> SpecialTextFinder:
    """One finder for all texts of a policy."""
    return SpecialTextFinder(tokens)


class SpecialTexts(TextStage):
    """Reports, replaces or rejects them."""

    def __init__(self, policy: SanitizePolicy, log: ChangeLog, before: Sequence[TextStage] = ()) -> None:
        super().__init__(policy, log, before)
        self._finder = finder_of(policy.special_tokens)
        self._found: list[SpecialText] = []
        self._noted: list[tuple[Positions, Positions, list[str]]] = []

    @property
    def found(self) -> list[SpecialText]:
        """What was kept so far, in order."""
        for starts, ends, tokens in self._noted:
            self._found += map(SpecialText, starts.tolist(), ends.tolist(), tokens)
        self._noted.clear()
        return self._found

    def _advance(self, text: str, *, final: bool) -> str:
        """A match may begin before what has to wait and end inside it; it is certain all the same."""
        cut = len(text) if final else len(text) - self._finder.num_held(text)
        if self._finder.is_in(text):
            pieces, ends = self._finder.split(text, cut)
            cut = int(ends[-1])
            out = self._mark(text[:cut], pieces, ends) if len(pieces) > 1 else text[:cut]
        else:
            out = text[:cut]
        self._held = text[cut:]
        self.num_taken += cut
        self._given += len(out)
        return out

    def _mark(self, text: str, pieces: list[str], ends: Positions) -> str:
        tokens, starts, ends = pieces[1::2], ends[:-1:2], ends[1::2]
        if self._policy.special_token == "reject":
            self._reject(Kind.SPECIAL_TOKEN, text, int(starts[0]), int(ends[0]))
        kind, counts = Kind.SPECIAL_TOKEN, {Kind.SPECIAL_TOKEN: len(tokens)}
        if self._policy.special_token == "replace":
            out = REPLACEMENT_CHAR.join(pieces[::2])
            return self._changed(text, out, counts, lambda: Edits.of_kind(kind, starts, ends, np.ones_like(starts)))
        self._noted.append((starts + self._given, ends + self._given, tokens))
        return self._changed(text, text, counts, lambda: Edits.of_kind(kind, starts, ends, ends - starts))

    def _num_to_hold(self, text: str) -> int:
        return self._finder.num_held(text)

    def _work(self, text: str) -> str:
        return text
