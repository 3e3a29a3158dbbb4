"""The character classes against Unicode's own categories."""

from __future__ import annotations

import unicodedata

from degarble.tokenizer.sanitize import SanitizePolicy, TokenSanitizer

JOINERS = {0x180E, *range(0x200B, 0x200E), *range(0x2060, 0x2065), 0xFEFF}


def is_harmful(char: str) -> bool:
    """By category: controls, surrogates, private use; and the ranges that have none of their own."""
    code, category = ord(char), unicodedata.category(char)
    nonchar = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
    other = 0xE0000 <= code <= 0xE007F or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
    return (category in ("Cc", "Cs", "Co") and char not in "\t\n\r") or nonchar or other


def test_every_character_between_two_letters() -> None:
    sanitizer = TokenSanitizer(SanitizePolicy(nfc="keep", max_private_use=0))
    blocks = {*range(0, 0x20000, 4096), 0xE0000, *(plane << 16 | 0xF000 for plane in range(17)), 0xF0000, 0x100000}
    for start in sorted(blocks):
        chars = [chr(code) for code in range(start, start + 4096)]
        expected = "a".join("" if is_harmful(char) else char for char in chars)
        assert sanitizer.sanitize("a".join(chars)).text == expected, f"U+{start:04X}"


def test_two_of_a_kind() -> None:
    sanitizer = TokenSanitizer(SanitizePolicy(nfc="keep"))
    for code in (*JOINERS, *range(0xFE00, 0xFE10), 0xE0100, 0xE01EF):
        assert sanitizer.sanitize(f"a{chr(code)}{chr(code)}b").text == f"a{chr(code)}b"
        assert sanitizer.sanitize(f"a{chr(code)}b{chr(code)}").text == f"a{chr(code)}b{chr(code)}"
