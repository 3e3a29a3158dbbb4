"""Characters that a token should not have: those without a meaning, those that cannot be seen, those read wrongly."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

import msgspec

from degarble.tokenizer.byte_alphabet import byte_letters, letters_to_bytes
from degarble.tokenizer.character_groups import Group, members_of
from degarble.tokenizer.look_alike import mixes_scripts
from degarble.tokenizer.mojibake import find_mojibake
from degarble.tokenizer.spelling import SEPARATOR, Spelling
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

KINDS = {
    "Co": "private-use",
    "Cn": "unassigned",
    "Cs": "lone surrogate",
    "Cc": "control",
    "Cf": "invisible",
}
"""Unicode's categories; what is unassigned depends on the Unicode version of the Python that runs."""
JOINERS = "\u200c\u200d"
"""Legal between letters and emoji of many scripts."""
TEXT_CONTROLS = "\t\n\r"
_MEANINGLESS = re.compile(f"[{members_of(Group.PRIVATE_USE)}{members_of(Group.NONCHARACTER)}]")
_SUSPECTS = re.compile("[\ue000-\uf8ff\ufdd0-\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0002fffe-\U0010ffff]")
"""All of these and a few more, in few ranges: `re` has a bitmap for characters below U+10000, and a list for others."""
_LEAD = re.compile("[\u00c2-\u00f4]")
"""The first byte of a longer character, read as a character of its own."""
_LEADS = frozenset({0xEE, 0xEF, *range(0xF0, 0xF5)})
"""First bytes of private-use characters and noncharacters, among others."""


class Oddity(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one text."""

    kind: str
    what: str
    code_points: str
    likely: str | None = None
    """What the text probably was."""


def oddity(text: str) -> Oddity | None:
    """The first thing that is wrong with the text of a token. None: nothing."""
    if text.isascii() and text.isprintable():
        return None
    is_plain = text.isprintable() and REPLACEMENT_CHAR not in text
    odd = [] if is_plain else [char for char in dict.fromkeys(text) if _is_odd(char, text)]
    likely = _meant(text) if _LEAD.search(text) else None
    if odd:
        kind = KINDS.get(unicodedata.category(odd[0]), "replacement")
        shown = " ".join(f"U+{ord(char):04X}" for char in odd[:6])
        return Oddity(kind=kind, what=f"{kind} characters: {shown}", code_points=shown, likely=likely)
    shown = " ".join(f"U+{ord(char):04X}" for char in dict.fromkeys(text) if not char.isascii())[:60]
    if likely is not None:
        return Oddity(kind="mojibake", what="text that was decoded wrongly", code_points=shown, likely=likely)
    if mixes_scripts(text):
        return Oddity(kind="mixed-scripts", what=f"letters of two scripts in one word: {shown}", code_points=shown)
    return None


def _is_odd(char: str, text: str) -> bool:
    if char == REPLACEMENT_CHAR:
        return True
    if char in TEXT_CONTROLS or unicodedata.category(char) not in KINDS:
        return False
    return char not in JOINERS or text.replace(char, "").isascii()


def _meant(text: str) -> str | None:
    """The text before a wrong decoding: UTF-8 read as Latin-1 or Windows-1252, or shown in the byte alphabet."""
    for trace in find_mojibake(text):
        if trace.kind == "double-encoding" and trace.likely:
            return text.replace(trace.text, trace.likely)
    data = letters_to_bytes(text)
    try:
        plain = None if data is None else data.decode()
    except UnicodeDecodeError:
        return None
    return plain if plain is not None and not plain.isascii() and plain != text else None


def odd_pieces(spelling: Spelling) -> list[str]:
    """Pieces whose text has private-use characters or noncharacters, each once, found in one pass over all."""
    pattern = _letters_pattern() if spelling.is_byte_level else _SUSPECTS
    found: dict[str, None] = {}
    end = 0
    for match in pattern.finditer(spelling.joined):
        if match.start() < end:
            continue
        start = spelling.joined.rfind(SEPARATOR, 0, match.start()) + 1
        end = spelling.joined.find(SEPARATOR, match.start())
        piece = spelling.joined[start:end]
        data = letters_to_bytes(piece) if spelling.is_byte_level else None
        text = piece if data is None else data.decode("utf-8", "ignore")
        if _MEANINGLESS.search(text):
            found[piece] = None
    return list(found)


@cache
def _letters_pattern() -> re.Pattern[str]:
    return re.compile(f"[{''.join(byte_letters()[lead] for lead in sorted(_LEADS))}]")
