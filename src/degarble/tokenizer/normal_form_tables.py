"""What each character does when text is brought into Unicode's composed form; from the interpreter's own data.

A character and what may combine with it form a *segment*, and segments are normalised apart from each other (UAX #15,
section 9). A segment begins with a character that does not *extend* the one before, in the text and in its composed
form: so segments before and after correspond one to one.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.code_points import one_of

PLANES_END = 0x30000
"""Nothing above it has a decomposition or a combining class."""
EXTENDS, CHANGES, MOVES, SIZE = 0x80, 0x40, 0x20, 0x1F
"""Bits: extends the segment before; is never in composed text; becomes one other character; length decomposed."""
_HANGUL_L, _HANGUL_V, _HANGUL_T = range(0x1100, 0x1113), range(0x1161, 0x1176), range(0x11A8, 0x11C3)
_HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)


class NormalFormTables(msgspec.Struct, frozen=True):
    """Made once a process, in less than 0.1 s, and only for text that is not ASCII."""

    traits: NDArray[np.uint8]
    """Code point -> bits."""
    moved: NDArray[np.uint32]
    """Code point below PLANES_END -> the character it becomes, where that is one: CJK compatibility ideographs …"""
    extenders: frozenset[str]
    """Characters that never begin a segment: marks, what may combine with the character before, and what comes out of
    one character behind the first."""
    holders: frozenset[str]
    """Characters that some extender can still change."""
    long_run: re.Pattern[str]
    """Seven extenders in a row, or characters above U+FFFF."""


@cache
def tables() -> NormalFormTables:
    """The tables of this interpreter's version of Unicode."""
    chars = [chr(code) for code in range(PLANES_END)]
    marks = {char for char in chars if unicodedata.combining(char)}
    decomposed, pairs = _decompositions(chars)
    firsts = {first for first, _ in pairs}
    seconds = {second for _, second in pairs}.union(map(chr, (*_HANGUL_V, *_HANGUL_T)))
    seconds.update(*(text[1:] for text in decomposed.values()))
    heads = {char: text[0] for char, text in decomposed.items()}
    extenders = marks | seconds | {char for char, head in heads.items() if head in marks or head in seconds}
    changed = {char: unicodedata.normalize("NFC", char) for char in decomposed}
    changed = {char: text for char, text in changed.items() if text != char}
    holders = firsts | changed.keys() | {char for char, text in decomposed.items() if not firsts.isdisjoint(text)}
    holders.update(map(chr, (*_HANGUL_L, *_HANGUL_SYLLABLES[:: len(_HANGUL_T) + 1])))
    traits = np.ones(sys.maxunicode + 1, np.uint8)
    traits[_HANGUL_SYLLABLES.start : _HANGUL_SYLLABLES.stop] = 3
    traits[_HANGUL_SYLLABLES.start : _HANGUL_SYLLABLES.stop : len(_HANGUL_T) + 1] = 2
    traits[_codes(decomposed)] = [len(text) for text in decomposed.values()]
    traits[_codes(extenders)] |= EXTENDS
    traits[_codes(changed)] |= CHANGES
    moves = {char: ord(text) for char, text in changed.items() if len(text) == 1}
    traits[_codes(moves)] |= MOVES
    moved = np.zeros(PLANES_END, np.uint32)
    moved[_codes(moves)] = list(moves.values())
    long_run = re.compile(one_of(traits >= EXTENDS) + "{7}")
    return NormalFormTables(traits, moved, frozenset(extenders), frozenset(holders), long_run)


def _decompositions(chars: list[str]) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Full canonical decompositions but those of Hangul, and the pairs that compose."""
    decomposed: dict[str, str] = {}
    pairs: set[tuple[str, str]] = set()
    for char in chars:
        parts = unicodedata.decomposition(char)
        if parts and not parts.startswith("<"):
            decomposed[char] = unicodedata.normalize("NFD", char)
            codes = [int(part, 16) for part in parts.split()]
            if len(codes) == 2 and unicodedata.normalize("NFC", char) == char:
                pairs.add((chr(codes[0]), chr(codes[1])))
    return decomposed, pairs


def _codes(chars: Iterable[str]) -> list[int]:
    return [ord(char) for char in chars]
