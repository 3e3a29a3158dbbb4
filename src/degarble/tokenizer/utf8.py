"""UTF-8 that arrives in pieces: which characters are certain now, which bytes must wait.

A byte sequence that breaks the encoding becomes one U+FFFD for each *maximal subpart*, the longest beginning of a
character that was still possible (Unicode 16, section 3.9, table 3-7). CPython's decoder does the same and releases a
character with its last byte, but for one detail: it waits for the third byte of an encoded surrogate (`ED A0` to
`ED BF`), which is invalid with the second. `decode_available_reference` spells the rule out: the oracle in the tests.
"""

from __future__ import annotations

from codecs import utf_8_decode

REPLACEMENT_CHAR = "\ufffd"
MAX_PENDING_BYTES = 3
"""A character has at most four bytes, and the fourth completes it."""


def decode_available(data: bytes, *, final: bool = False) -> tuple[str, bytes]:
    """Text that no later byte can change, and the bytes that must wait (none if `final`)."""
    text, used = utf_8_decode(data, "replace", final)
    if used == len(data):
        return text, b""
    rest = data[used:]
    if rest[0] == 0xED and len(rest) == 2 and rest[1] >= 0xA0:
        return text + 2 * REPLACEMENT_CHAR, b""
    return text, rest


def decode_available_reference(data: bytes, *, final: bool = False) -> tuple[str, bytes]:
    """The same, one byte at a time."""
    text = ""
    at = 0
    while at < len(data):
        length, complete, possible = _subpart(data, at)
        if possible and not complete and not final:
            break
        text += data[at : at + length].decode() if complete else REPLACEMENT_CHAR
        at += length
    return text, data[at:]


def _subpart(data: bytes, at: int) -> tuple[int, bool, bool]:
    """Length of the maximal subpart at `at`, whether it is a whole character, whether more bytes could make it one."""
    lead = data[at]
    if lead < 0x80:
        return 1, True, True
    if not 0xC2 <= lead <= 0xF4:
        return 1, False, False
    need = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    low, high = _SECOND_BYTE.get(lead, (0x80, 0xBF))
    length = 1
    while length < need and at + length < len(data):
        if not low <= data[at + length] <= high:
            return length, False, False
        low, high = 0x80, 0xBF
        length += 1
    return length, length == need, True


_SECOND_BYTE = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}
"""Leads whose second byte is narrower: overlong forms, surrogates, and what lies above U+10FFFF."""
