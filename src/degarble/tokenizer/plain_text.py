"""Texts that people write without a thought, told from markers that only a machine writes."""

from __future__ import annotations

import re

SPACES = "\u0120\u2581"
"""What stands for a space in front of a piece."""
_WORDS = re.compile(r"[^\W_]{2,}(?: [^\W_]+)*|[!-~]")
"""One or more words, or a single printable ASCII character."""
_BRACKETS = ("<>", "[]", "{}", "＜＞")


def is_plain_text(piece: str) -> bool:
    """`user`, `▁the`, `你好`, `{`; not `<|user|>`, `eng_Latn`, nor runs of spaces."""
    return _WORDS.fullmatch(piece.lstrip(SPACES)) is not None


def is_bracketed(piece: str) -> bool:
    """`<unused7>`, `[PAD300]`: how reserved places are written."""
    text = piece.strip(f"{SPACES} ")
    return len(text) > 2 and text[0] + text[-1] in _BRACKETS
