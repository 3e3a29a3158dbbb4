"""The 256 letters under which byte-level vocabularies write bytes.

A `tokenizer.json` is text, a token is bytes. GPT-2 gave each byte one printable letter: bytes that print stand for
themselves, the other 68 take the letters from U+0100 on in order, so a space is `Ġ` (U+0120) and a newline `Ċ`
(U+010A). Text that shows these letters to a user was decoded by someone who did not know this.
"""

from __future__ import annotations

from functools import cache

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_NO_LETTER = "\uffff"
"""Stands for characters below U+0100 that are no letters of the alphabet; encoding it as Latin-1 fails on purpose."""


@cache
def byte_letters() -> tuple[str, ...]:
    """Byte value -> its letter."""
    letters = [""] * 256
    for byte in _PRINTABLE:
        letters[byte] = chr(byte)
    hidden = (byte for byte in range(256) if not letters[byte])
    for place, byte in enumerate(hidden):
        letters[byte] = chr(0x100 + place)
    return tuple(letters)


@cache
def _latin_1_of_letters() -> dict[int, str]:
    table = dict.fromkeys(range(256), _NO_LETTER)
    table.update({ord(letter): chr(byte) for byte, letter in enumerate(byte_letters())})
    return table


def letters_to_bytes(piece: str) -> bytes | None:
    """Bytes that a vocabulary entry stands for; None if it holds a character outside the alphabet."""
    try:
        return piece.translate(_latin_1_of_letters()).encode("latin-1")
    except UnicodeEncodeError:
        return None


def bytes_to_letters(data: bytes) -> str:
    """How a byte-level vocabulary writes these bytes."""
    return data.decode("latin-1").translate(_letters_of_latin_1())


@cache
def _letters_of_latin_1() -> dict[int, str]:
    return dict(enumerate(byte_letters()))
