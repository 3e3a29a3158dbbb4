"""Texts of control tokens, which no answer should show."""

from __future__ import annotations

import re
from collections.abc import Iterable

_ANYWHERE = re.compile(
    r"<\|[a-zA-Z][a-zA-Z0-9_]{1,40}\|>|<｜[^\s｜<>]{1,40}｜>|<(?:start|end)_of_turn>|<(?:eos|bos|pad|unk)>|\[/?INST\]|<</?SYS>>"
)
_AT_AN_END = re.compile(r"^</?s>|</?s>$")
"""Also tags of HTML, so that they tell something at the very beginning and end only."""


def find_control_text(text: str, prompt: str, special_texts: Iterable[str] = ()) -> tuple[str, int] | None:
    """The first one that the prompt does not have, and where. `special_texts`: the tokenizer's own, where it is known."""
    found = [(match[0], match.start()) for match in _ANYWHERE.finditer(text)]
    found += [(match[0], match.start()) for match in _AT_AN_END.finditer(text.strip())]
    found += [(one, text.find(one)) for one in special_texts if len(one) > 2 and one in text]
    return min(((one, at) for one, at in found if one not in prompt), key=lambda pair: pair[1], default=None)
