"""Unicode's composed form (NFC) of text that arrives in chunks.

A character and the marks after it form a segment; segments are normalised apart from each other (UAX #15, section 9). A
chunk may end inside one, so the last segment waits if anything could still change it: if it has marks, or if its
character combines with some mark. One character, mostly; 31 at most, since a character may carry 30 marks (the limit of
Unicode's stream-safe format) and what is beyond them is dropped, or the text rejected.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from degarble.tokenizer.sanitize_policy import Kind, SanitizeRejected
from degarble.tokenizer.text_stage import Edit, Report, TextStage

MAX_MARKS = 30
CJK_PLANES_END = 0x30000
"""Nothing above it has a decomposition or a combining class."""
_HANGUL_L, _HANGUL_V, _HANGUL_T = range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3)
_HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


@dataclass(frozen=True, slots=True)
class _Tables:
    """Derived once from the interpreter's Unicode data."""

    extenders: frozenset[str]
    """Characters that never begin a segment: marks, and what may combine with the character before."""
    holders: frozenset[str]
    """Characters that some extender can still change."""
    long_run: re.Pattern[str]
    """Eight extenders or more, which may be too many once decomposed."""
    extender_run: re.Pattern[str]
    maybe_long: re.Pattern[str]
    """Finds every long run and some more, many times faster: see `_loose_class`."""
    unstable: re.Pattern[str]
    """Stretches from one character that normalisation may change to another, joined where they are close."""


@cache
def tables() -> _Tables:
    """Some 0.1 s, once a process, and only for text that is not ASCII."""
    decomposed: dict[str, str] = {}
    firsts: set[str] = set()
    seconds: set[str] = set()
    marks: set[str] = set()
    for char in map(chr, range(CJK_PLANES_END)):
        if unicodedata.combining(char):
            marks.add(char)
        pair = unicodedata.decomposition(char)
        if pair and not pair.startswith("<"):
            decomposed[char] = unicodedata.normalize("NFD", char)
            parts = [chr(int(part, 16)) for part in pair.split()]
            if len(parts) == 2 and unicodedata.normalize("NFC", char) == char:
                firsts.add(parts[0])
                seconds.add(parts[1])
    seconds.update(map(chr, (*_HANGUL_V, *_HANGUL_T)))
    openers = {char: text[0] for char, text in decomposed.items()}
    extenders = marks | seconds | {char for char, first in openers.items() if first in marks or first in seconds}
    changed = {char for char in decomposed if unicodedata.normalize("NFC", char) != char}
    holders = firsts | changed | {char for char, text in decomposed.items() if not firsts.isdisjoint(text)}
    holders.update(map(chr, (*_HANGUL_L, *_HANGUL_SYLLABLES[:: len(_HANGUL_T) + 1])))
    extender, loose, both = _char_class(extenders), _loose_class(extenders), _loose_class(extenders | changed)
    return _Tables(
        extenders=frozenset(extenders),
        holders=frozenset(holders),
        long_run=re.compile(f"[{extender}]{{8,}}"),
        extender_run=re.compile(f"[{extender}]+"),
        maybe_long=re.compile(f"[{loose}][{loose}]{{7,}}"),
        unstable=re.compile(f"[{both}](?:[^{both}]{{0,8}}[{both}])*"),
    )


def _char_class(chars: set[str]) -> str:
    """Ranges for a character class of a regular expression; none of these characters needs an escape."""
    ranges: list[list[int]] = []
    for code in sorted(map(ord, chars)):
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    return "".join(f"{chr(low)}-{chr(high)}" if high > low else chr(low) for low, high in ranges)


def _loose_class(chars: set[str]) -> str:
    """The same, with whole stretches above U+FFFF: `re` has a bitmap below it and walks a list of ranges above."""
    return _char_class({char for char in chars if char < "\U00010000"}) + ASTRAL_STRETCHES


ASTRAL_STRETCHES = "\U00010100-\U0001d2ff\U0001e000-\U0001efff\U0002f800-\U0002fa1f"
"""Scripts, musical notation and CJK compatibility; emoji and other ideographs are outside. Tested for completeness."""


class MarkLimit(TextStage):
    """Drops (or rejects) marks beyond the thirtieth of one character, counted decomposed: NFC changes no count."""

    def __init__(self, report: Report, *, reject: bool) -> None:
        super().__init__(report)
        self._reject = reject
        self._segment = ""  # the last segment so far, as far as it was kept
        self._is_full = False

    def _num_to_hold(self, text: str) -> int:
        return 0

    def _work(self, text: str) -> str:
        table = tables()
        if text.isascii():
            self._segment, self._is_full = text[-1], False
            return text
        edits: list[Edit] = []
        done = 0
        if text[0] in table.extenders and (run := table.extender_run.match(text)):
            done = run.end()
            self._judge(run[0], 0, edits)
        if done < len(text):
            for start, end in _long_runs(text, done):
                self._segment, self._is_full = text[start - 1 : start] if start > done else "", False
                self._judge(text[start:end], start, edits)
                done = end
            if done < len(text):
                start = len(text) - 1
                while start > done and text[start] in table.extenders:
                    start -= 1
                self._segment, self._is_full = text[start:], False
        return self._edit(text, edits) if edits else text

    def _judge(self, run: str, start: int, edits: list[Edit]) -> None:
        """Let the last segment grow by a run of marks (or begin with it) until it is full."""
        room = 0 if self._is_full else _num_fitting(self._segment, run)
        self._segment += run[:room]
        if room == len(run):
            return
        self._is_full = True
        if self._reject:
            raise SanitizeRejected(Kind.NFC, self._taken + start + room, run[room:])
        edits.append((start + room, start + len(run), "", Kind.NFC.value))


def _long_runs(text: str, start: int) -> Iterator[tuple[int, int]]:
    for loose in tables().maybe_long.finditer(text, start):
        for run in tables().long_run.finditer(text, *loose.span()):
            yield run.span()


def _num_fitting(segment: str, run: str) -> int:
    """How many characters of a run fit into a segment before it has more than 30 marks."""
    size = len(unicodedata.normalize("NFD", segment))
    for at, char in enumerate(run):
        size += len(unicodedata.normalize("NFD", char))
        if size > MAX_MARKS + 1:
            return at
    return len(run)


class ComposedForm(TextStage):
    """Normalises to NFC (or rejects what is not)."""

    def __init__(self, report: Report, *, reject: bool) -> None:
        super().__init__(report)
        self._reject = reject

    def _num_to_hold(self, text: str) -> int:
        table = tables()
        start = len(text) - 1
        while start > 0 and text[start] in table.extenders:
            start -= 1
        if start == len(text) - 1 and text[start] not in table.holders and text[start] not in table.extenders:
            return 0
        return len(text) - start

    def _work(self, text: str) -> str:
        if text.isascii() or unicodedata.is_normalized("NFC", text):
            return text
        table = tables()
        edits: list[Edit] = []
        done = 0
        for found in table.unstable.finditer(text):
            start, end = found.span()
            if start > done and text[start] in table.extenders:
                start -= 1
            while end < len(text) and text[end] in table.extenders:
                end += 1
            composed = unicodedata.normalize("NFC", text[start:end])
            if composed != text[start:end]:
                if self._reject:
                    raise SanitizeRejected(Kind.NFC, self._taken + start, text[start:end])
                edits.append((start, end, composed, Kind.NFC.value))
            done = end
        return self._edit(text, edits)
