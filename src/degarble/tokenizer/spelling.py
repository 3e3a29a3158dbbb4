"""How a vocabulary writes bytes and spaces, told by its pieces and not by what the file says about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from degarble.tokenizer.byte_alphabet import byte_letters, bytes_to_letters
from degarble.tokenizer.decoder_pipeline import METASPACE

BYTE_SPACE = bytes_to_letters(b" ")
WORD_PREFIX = "##"
SEPARATOR = "\x00"
BYTE_NAMES = tuple(f"<0x{value:02X}>" for value in range(256))
MIN_SPACES = 2
"""A few words with a space in front prove nothing: vocabularies of whole words may have them."""
MIN_BYTE_TOKENS = 128
"""Byte fallback has 256; fewer than half are words that look alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """What the pieces of one vocabulary show."""

    space: str | None
    """The letter that stands for a space: `Ġ`, U+2581, the space itself, or None where pieces have none of them."""
    byte_tokens: frozenset[int]
    """Byte values that have a piece `<0xHH>`."""
    byte_letters: frozenset[int]
    """Byte values whose letter is a piece of its own."""
    is_word_piece: bool
    """Whether pieces inside words begin with `##`, and spaces are not written at all."""
    pieces: frozenset[str] = field(repr=False)
    joined: str = field(repr=False)
    """All pieces with U+0000 between and around them, to be searched at once."""

    @property
    def is_byte_level(self) -> bool:
        """Whether pieces are written in the letters of the byte alphabet."""
        return self.space == BYTE_SPACE

    @property
    def has_byte_fallback(self) -> bool:
        """Whether pieces `<0xHH>` stand for bytes."""
        return not self.is_byte_level and len(self.byte_tokens) >= MIN_BYTE_TOKENS

    @property
    def name(self) -> str:
        """For messages."""
        if self.is_byte_level:
            return "the byte alphabet (Ġ for a space)"
        if self.space in (None, " "):
            return "plain text"
        return f"U+2581 for a space{' and <0xHH> for bytes' if self.has_byte_fallback else ''}"


def read_spelling(pieces: Sequence[str | None], added: Iterable[str]) -> Spelling:
    """Look at all pieces; letters inside added tokens (`<｜begin▁of▁sentence｜>`) prove nothing."""
    texts = list(filter(None, pieces))
    stored = frozenset(texts)
    joined = SEPARATOR.join(["", *texts, ""])
    outside = SEPARATOR.join(["", *stored.intersection(added), ""])
    marks = {mark: joined.count(mark) - outside.count(mark) for mark in (BYTE_SPACE, METASPACE)}
    marks[" "] = joined.count(f"{SEPARATOR} ") - outside.count(f"{SEPARATOR} ")
    most, second, _ = sorted(marks, key=lambda mark: -marks[mark])
    has_space = marks[most] > max(MIN_SPACES if most == " " else 0, marks[second])
    return Spelling(
        space=most if has_space else None,
        byte_tokens=_present(BYTE_NAMES, stored),
        byte_letters=_present(byte_letters(), stored),
        is_word_piece=not has_space and f"{SEPARATOR}{WORD_PREFIX}" in joined,
        pieces=stored,
        joined=joined,
    )


def _present(names: Sequence[str], stored: frozenset[str]) -> frozenset[int]:
    return frozenset(value for value, name in enumerate(names) if name in stored)
