"""The sanitiser's rules once more, one character at a time: slow, without arrays, and an oracle for the fast one."""

from __future__ import annotations

import re
import unicodedata
from functools import cache

from degarble.tokenizer.mark_limit import MAX_MARKS
from degarble.tokenizer.normal_form_tables import tables
from degarble.tokenizer.sanitize import Kind, SanitizePolicy

FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,6}\U000e007f")
GROUPS = (
    (Kind.BIDI, "[\u202a-\u202e\u2066-\u2069]"),
    (Kind.SURROGATE, "[\ud800-\udfff]"),
    (Kind.HIDDEN, "[\U000e0000-\U000e007f]"),
    (Kind.NONCHARACTER, "[\ufdd0-\ufdef]"),
)
ROWS = (
    (Kind.ZERO_WIDTH, "[\u180e\u200b-\u200d\u2060-\u2064\ufeff]"),
    (Kind.HIDDEN, "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"),
)


def sanitize_slowly(text: str, policy: SanitizePolicy) -> str:
    """What a policy that rejects nothing makes of a text."""
    text = re.sub("[\ud800-\udbff][\udc00-\udfff]", _character, text)
    text = _without_harmful(text, policy)
    if policy.nfc != "keep":
        text = unicodedata.normalize("NFC", _with_few_marks(text))
    return _without_specials(text, policy) if policy.special_token == "replace" else text


def _character(pair: re.Match[str]) -> str:
    return pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le")


@cache
def _kind_of(char: str) -> Kind | None:
    """The kind of a character that is harmful wherever it stands, or of private use."""
    if ord(char) & 0xFFFE == 0xFFFE:
        return Kind.NONCHARACTER
    by_category = {"Co": Kind.PRIVATE_USE, "Cc": Kind.CONTROL}.get(unicodedata.category(char))
    return by_category or next((kind for kind, members in GROUPS if re.match(members, char)), None)


@cache
def _row_of(char: str) -> Kind | None:
    return next((kind for kind, members in ROWS if re.match(members, char)), None)


def _without_harmful(text: str, policy: SanitizePolicy) -> str:
    in_flags = {at for flag in FLAG.finditer(text) for at in range(*flag.span())}
    num_private_use, row, out = 0, None, ""
    for at, char in enumerate(text):
        kind = None if at in in_flags or char in policy.keep_controls else _kind_of(char)
        if kind is Kind.PRIVATE_USE:
            num_private_use += 1
            kind = kind if num_private_use > policy.max_private_use else None
        row_here = _row_of(char)
        if row_here:
            kind = row_here if row_here == row else None
        action = policy.action(kind) if kind else "keep"
        if row_here or action != "drop":
            row = row_here
        if action != "drop":
            out += "\ufffd" if action == "replace" else char
    return out


def _with_few_marks(text: str) -> str:
    size, out = 0, ""
    for char in text:
        extends = char in tables().extenders
        size = (size if extends else 0) + len(unicodedata.normalize("NFD", char))
        out += "" if extends and size > MAX_MARKS + 1 else char
    return out


def _without_specials(text: str, policy: SanitizePolicy) -> str:
    at, out = 0, ""
    longest_first = sorted(policy.special_tokens, key=len, reverse=True)
    while at < len(text):
        found = next((token for token in longest_first if text.startswith(token, at)), "")
        out += "\ufffd" if found else text[at]
        at += len(found) or 1
    return out
