"""Text of a model for a terminal: what would steer it, or cannot be seen, is spelled out.

A broken model writes control characters; a malicious endpoint writes escape sequences that rename windows and rewrite
lines. Line ends and tabs stay, and the joiners that emoji and Indic scripts are written with.
"""

from __future__ import annotations

import unicodedata

HIDDEN = frozenset(("Cc", "Cf", "Cs", "Co", "Cn"))
KEPT = frozenset("\n\t\u200c\u200d")


def safe_text(text: str) -> str:
    r"""`\x1b` for an escape. Each character for itself, so that pieces of a stream need nothing from each other."""
    if text.isprintable():
        return text
    return "".join(
        char if char in KEPT or unicodedata.category(char) not in HIDDEN else _spelled(char) for char in text
    )


def _spelled(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
