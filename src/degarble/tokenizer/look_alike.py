"""Texts that a person cannot tell apart: one skeleton for all of them.

DeepSeek writes its markers with U+FF5C (｜) and U+2581 (▁). A copy through a web page, an editor or NFKC turns these into
`|` and `_`, and the marker becomes ten ordinary tokens. Unicode's own list of confusable characters has thousands of
entries; this one has those that occur in markers, beside what NFKC folds and what cannot be seen at all.
"""

from __future__ import annotations

import re
import unicodedata

from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

_GROUPS = {
    "_": "\u2581 \u02cd\u2017",
    "|": "\u2502\u2503\u2223\u01c0\u23d0\u2758\u4e28\uffe8",
    "<": "\u2039\u3008\u27e8\u276c\u2329",
    ">": "\u203a\u3009\u27e9\u276d\u232a",
    "-": "\u2010\u2011\u2012\u2013\u2014\u2015\u2212",
    "'": "\u2018\u2019\u201b\u02bc",
    '"': "\u201c\u201d\u201f",
    "/": "\u2044\u2215",
    "a": "\u0430\u03b1",
    "c": "\u0441",
    "d": "\u0501",
    "e": "\u0435",
    "i": "\u0456\u03b9\u0131",
    "j": "\u0458",
    "o": "\u043e\u03bf",
    "p": "\u0440\u03c1",
    "s": "\u0455",
    "x": "\u0445",
    "y": "\u0443",
    "A": "\u0410\u0391",
    "B": "\u0412\u0392",
    "C": "\u0421",
    "E": "\u0415\u0395",
    "H": "\u041d\u0397",
    "I": "\u0406\u0399",
    "K": "\u041a\u039a",
    "M": "\u041c\u039c",
    "O": "\u041e\u039f",
    "P": "\u0420\u03a1",
    "S": "\u0405",
    "T": "\u0422\u03a4",
    "X": "\u0425\u03a7",
}
_TABLE = str.maketrans({look: plain for plain, looks in _GROUPS.items() for look in looks})
_MIXED_WORD = re.compile("[A-Za-z][\u0370-\u03ff\u0400-\u052f]|[\u0370-\u03ff\u0400-\u052f][A-Za-z]")
"""A Latin letter beside a Greek or Cyrillic one: no word is written so."""


def skeleton(text: str) -> str:
    """The same for all texts that look alike; characters without a shape are left out."""
    if not (text.isascii() and text.isprintable()):
        text = unicodedata.normalize("NFKC", text)
        if not text.isprintable() or REPLACEMENT_CHAR in text:
            text = "".join(char for char in text if char != REPLACEMENT_CHAR and unicodedata.category(char)[0] != "C")
    return text.translate(_TABLE)


def mixes_scripts(text: str) -> bool:
    """Whether a word has letters of two alphabets."""
    return not text.isascii() and _MIXED_WORD.search(text) is not None


def code_points(text: str) -> str:
    """The characters that are not ASCII, or else the punctuation, by number, each once."""
    shown = dict.fromkeys(char for char in text if not char.isascii()) or dict.fromkeys(
        char for char in text if not char.isalnum()
    )
    return " ".join(f"U+{ord(char):04X}" for char in list(shown)[:6])
