"""The text of special tokens inside text: a user who types `<|im_end|>` must not end the turn."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy, SanitizeRejected
from degarble.tokenizer.text_stage import Report, TextStage
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR


@dataclass(frozen=True, slots=True)
class SpecialText:
    """Where the text of a special token stands; half-open, in code points of the text as given out."""

    start: int
    end: int
    token: str


class SpecialTextFinder:
    """Finds the leftmost longest, without one long alternation: DeepSeek-V3 has 818 that begin alike."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = frozenset(tokens)
        self._beginnings = frozenset(token[:length] for token in self.tokens for length in range(1, len(token)))
        self._last_chars = frozenset(beginning[-1] for beginning in self._beginnings)
        self._lengths = sorted({len(token) for token in self.tokens}, reverse=True)
        openings = sorted({token[:2] for token in self.tokens}, key=len, reverse=True)
        self._opening = re.compile("|".join(map(re.escape, openings)) or "(?!)")

    def find(self, text: str, before: int, start: int = 0) -> Iterator[tuple[int, int]]:
        """Matches that begin in [start, before), apart from each other; each start and end."""
        at = start
        while (opening := self._opening.search(text, at)) and opening.start() < before:
            first = opening.start()
            room = len(text) - first
            fits = (n for n in self._lengths if n <= room and text[first : first + n] in self.tokens)
            length = next(fits, 0)
            if length:
                yield first, first + length
            at = first + max(length, 1)

    def num_held(self, text: str) -> int:
        """Characters at the end that may be the beginning of a token."""
        if not text or text[-1] not in self._last_chars:
            return 0
        for length in range(min(self._lengths[0] - 1, len(text)), 0, -1):
            if text[-length:] in self._beginnings:
                return length
        return 0


@lru_cache(maxsize=32)
def finder_of(tokens: tuple[str, ...]) -> SpecialTextFinder:
    """One finder for all texts of a policy."""
    return SpecialTextFinder(tokens)


class SpecialTexts(TextStage):
    """Reports, replaces or rejects them."""

    def __init__(self, policy: SanitizePolicy, report: Report) -> None:
        super().__init__(report)
        self._finder = finder_of(policy.special_tokens)
        self._action = policy.special_token
        self.found: list[SpecialText] = []

    def _advance(self, text: str, *, final: bool) -> str:
        """A match may begin before what has to wait and end inside it; it is certain all the same."""
        cut = len(text) if final else len(text) - self._finder.num_held(text)
        found = list(self._finder.find(text, cut))
        cut = max(cut, found[-1][1] if found else 0)
        self._held = text[cut:]
        out = self._mark(text[:cut], found)
        self._taken += cut
        self._given += len(out)
        return out

    def _mark(self, text: str, found: list[tuple[int, int]]) -> str:
        if not found:
            return text
        if self._action == "reject":
            start, end = found[0]
            raise SanitizeRejected(Kind.SPECIAL_TOKEN, self._taken + start, text[start:end])
        kind = Kind.SPECIAL_TOKEN.value
        if self._action == "replace":
            return self._edit(text, [(start, end, REPLACEMENT_CHAR, kind) for start, end in found])
        self.found += [SpecialText(self._given + start, self._given + end, text[start:end]) for start, end in found]
        self._report(text, self._taken, [(start, end, text[start:end], kind) for start, end in found])
        return text

    def _num_to_hold(self, text: str) -> int:
        return self._finder.num_held(text)

    def _work(self, text: str) -> str:
        return text
