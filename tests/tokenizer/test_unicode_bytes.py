"""Bytes in use, counted over all characters."""

from __future__ import annotations

from degarble.tokenizer.unicode_bytes import CONTROLS, IN_USE, NEVER_IN_UTF8, UNUSED_PLANES


def test_against_all_characters() -> None:
    """Every character but surrogates, in UTF-8."""
    text = "".join(map(chr, (*range(0xD800), *range(0xE000, 0x110000))))
    assert frozenset(text.encode()) == frozenset(range(256)) - NEVER_IN_UTF8


def test_parts_are_apart() -> None:
    assert not IN_USE & (NEVER_IN_UTF8 | UNUSED_PLANES | CONTROLS)
    assert {0x09, 0x0A, 0x0D, 0x20, 0x80, 0xC2, 0xE4, 0xF0, 0xF4} <= IN_USE
