"""Halves of UTF-16 pairs in a Python string, as `json.loads` of a half-escaped emoji leaves them."""

from __future__ import annotations

import re

from degarble.tokenizer.sanitize_policy import Kind
from degarble.tokenizer.text_stage import TextStage

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


class SurrogatePairs(TextStage):
    """Joins pairs. Lone halves are left to the next stage, which knows what to do with them."""

    def _num_to_hold(self, text: str) -> int:
        return int("\ud800" <= text[-1] <= "\udbff")

    def _work(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:
            return self._edit(
                text, [(m.start(), m.end(), join_pair(m[0]), Kind.SURROGATE.value) for m in _PAIR.finditer(text)]
            )
        return text


def join_pair(pair: str) -> str:
    """The character that a high and a low surrogate stand for."""
    return chr(0x10000 + ((ord(pair[0]) & 0x3FF) << 10) + (ord(pair[1]) & 0x3FF))
