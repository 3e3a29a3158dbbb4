"""Does a stored decoder give back what the pieces of its vocabulary spell, token by token and from left to right?

A trial is a list of tokens whose text is known from their spelling alone. The decoder has to give that text for the
whole list and for every beginning of it that ends with a character: a stream shows beginnings, and may not take back
what it showed. A step that trims, replaces or removes text across tokens fails there; a step that does not know the
spelling lets it leak.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator, Sequence

import msgspec

from degarble.tokenizer.byte_alphabet import bytes_to_letters, letters_to_bytes
from degarble.tokenizer.spelling import BYTE_NAMES, WORD_PREFIX, Spelling
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

Decode = Callable[[Sequence[str]], str]

START = "x"
"""Trials begin with this letter, so that what belongs to the start of a text does not matter."""
CUT = "客🌶é한"
"""Characters of two to four bytes, spelled byte by byte."""
NUM_SAMPLED = 8
TOKENS_SAMPLED = 24


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, and the text of each as it stands inside a text."""

    tokens: tuple[str, ...]
    parts: tuple[bytes, ...]


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """The shortest beginning of a trial that came out wrong."""

    tokens: tuple[str, ...]
    expected: str
    found: str


def trials(spelling: Spelling, ordinary: Sequence[str], seed: int = 0) -> list[Trial]:
    """Spaces, characters cut into bytes, every printable letter, and pieces of this vocabulary."""
    return list(_word_piece_trials() if spelling.is_word_piece else _trials(spelling, ordinary, seed))


def first_failure(decode: Decode, listed: Sequence[Trial]) -> Failure | None:
    """The first trial that fails, and where. Raises what `decode` raises."""
    for trial in listed:
        for length in range(1, len(trial.tokens) + 1):
            tokens = trial.tokens[:length]
            try:
                expected = b"".join(trial.parts[:length]).decode()
            except UnicodeDecodeError:  # ends inside a character: what is shown of it is not the decoder's choice
                continue
            found = decode(tokens)
            if found != expected:
                return Failure(tokens=tokens, expected=expected, found=found)
    return None


def opening_spaces_dropped(decode: Decode, space: str) -> int:
    """How many of four leading spaces a decoder takes away."""
    text = decode([space] * 4 + [START])
    return 4 - (len(text) - len(text.lstrip(" ")))


def _trials(spelling: Spelling, ordinary: Sequence[str], seed: int) -> Iterator[Trial]:
    space = spelling.space or " "
    yield _trial(spelling, [START, f"{space}y", f"{space}{space}z", "w", space, "w", space, space])
    yield _trial(spelling, [START, START, START, f"{space}.", f"{space}'s", f"{space},", f"{space}n't", f"{space}!"])
    if spelling.is_byte_level or spelling.has_byte_fallback:
        for char in f"{CUT}\n\t":
            cut = [_byte_token(spelling, byte) for byte in char.encode()]
            yield _trial(spelling, [START, *cut, START, *cut, *cut])
            yield _trial(spelling, [*cut, START])
    for letter in string.digits + string.ascii_letters + string.punctuation:
        yield _trial(spelling, [letter, letter, START, letter])
    rng = random.Random(seed)
    whole = [piece for piece in ordinary if _is_whole(spelling, piece)]
    for _ in range(NUM_SAMPLED if whole else 0):
        yield _trial(spelling, [START, *rng.choices(whole, k=TOKENS_SAMPLED)])


def _word_piece_trials() -> Iterator[Trial]:
    """Without punctuation: some decoders of this kind take out the space before it, which is another rule's matter."""
    tokens = (START, f"{WORD_PREFIX}y", "z", f"{WORD_PREFIX}1", f"{WORD_PREFIX}A", "客", "z")
    yield Trial(tokens=tokens, parts=(b"x", b"y", b" z", b"1", b"A", " 客".encode(), b" z"))


def _trial(spelling: Spelling, tokens: Sequence[str]) -> Trial:
    return Trial(tokens=tuple(tokens), parts=tuple(_spelled(spelling, token) for token in tokens))


def _byte_token(spelling: Spelling, byte: int) -> str:
    return bytes_to_letters(bytes([byte])) if spelling.is_byte_level else BYTE_NAMES[byte]


def _spelled(spelling: Spelling, token: str) -> bytes:
    if spelling.is_byte_level:
        data = letters_to_bytes(token)
        return token.encode("utf-8", "replace") if data is None else data
    if spelling.has_byte_fallback and token in _BYTES:
        return _BYTES[token]
    text = token if spelling.space is None else token.replace(spelling.space, " ")
    return text.encode("utf-8", "replace")


_BYTES = {name: bytes([value]) for value, name in enumerate(BYTE_NAMES)}


def _is_whole(spelling: Spelling, piece: str) -> bool:
    """Whether a piece is whole characters, so that any order of such pieces is a text."""
    if spelling.has_byte_fallback and piece in _BYTES:
        return False
    data = letters_to_bytes(piece) if spelling.is_byte_level else piece.encode("utf-8", "ignore")
    if data is None:
        return False
    try:
        return REPLACEMENT_CHAR not in data.decode()
    except UnicodeDecodeError:
        return False
