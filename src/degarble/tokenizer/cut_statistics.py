"""What a vocabulary tells about the cuts it was trained with, whatever family it is of.

A piece was once made inside one pre-token. Cuts that split it apart are not the ones it was made with: the merge that
makes it can never be done. And a vocabulary trained without cuts has pieces that go across words, since the end of one
word and the space before the next are among the most frequent pairs of any text.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import msgspec

from degarble.tokenizer.byte_alphabet import letters_to_bytes
from degarble.tokenizer.cuts import Cutter

NUM_SAMPLED = 2000
MIN_JUDGED = 200
"""Pieces of at least two characters; with fewer a share says little."""
MIN_WORDS = 50
MAX_LENGTH = 500
TWO_WORDS = "one two"
_OPENS_WORD = re.compile("Ġ[A-Za-z]{2}")
_GOES_ACROSS = re.compile("[A-Za-z]Ġ")


class CutStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """Of one byte-level vocabulary under one pre-tokenizer."""

    num_judged: int
    num_apart: int
    """Sampled pieces that the pre-tokenizer cuts."""
    apart: tuple[str, ...]
    """Some of them, as text."""
    words_are_cut: bool
    num_word_pieces: int
    """Pieces that begin a word; counted only where words are not cut."""
    num_across: int
    """Pieces that hold the end of one word and the space after it; counted likewise."""

    @property
    def share_apart(self) -> float:
        """0 where too few pieces could be judged."""
        return self.num_apart / self.num_judged if self.num_judged >= MIN_JUDGED else 0.0

    @property
    def is_uncut(self) -> bool:
        """Whether words are not cut although the vocabulary knows words, and none that goes across two."""
        return not self.words_are_cut and self.num_word_pieces >= MIN_WORDS and self.num_across == 0


def cut_statistics(ordinary: Sequence[str], cutter: Cutter) -> CutStatistics:
    """Cut a sample of pieces, the same one each time. `cutter` has the pre-tokenizer alone."""
    texts = [text for piece in _sample(ordinary) if (text := _text(piece)) is not None and len(text) > 1]
    apart = [text for text in texts if len(cutter.cuts(text)) > 1]
    words_are_cut = len(cutter.cuts(TWO_WORDS)) > 1
    judged = () if words_are_cut else ordinary
    return CutStatistics(
        num_judged=len(texts),
        num_apart=len(apart),
        apart=tuple(apart[:5]),
        words_are_cut=words_are_cut,
        num_word_pieces=sum(_OPENS_WORD.match(piece) is not None for piece in judged),
        num_across=sum(_GOES_ACROSS.search(piece) is not None for piece in judged),
    )


def _sample(ordinary: Sequence[str]) -> Sequence[str]:
    if len(ordinary) <= NUM_SAMPLED:
        return ordinary
    return random.Random(0).sample(ordinary, NUM_SAMPLED)


def _text(piece: str) -> str | None:
    """None for pieces that end inside a character, and for monsters."""
    data = letters_to_bytes(piece) if len(piece) <= MAX_LENGTH else None
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None
