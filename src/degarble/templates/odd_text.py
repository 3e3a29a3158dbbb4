"""Characters around markers and messages that nobody meant: a backslash and an n for a line break, invisible ones, CR.

A model was trained on the one token that a line break after a role is. Two letters in its place, a no-break space, or a
carriage return before it are other tokens, at the most regular place of every prompt.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

import msgspec

from degarble.templates.conversations import ANSWER, FOLLOW_UP, QUESTION, SYSTEM

SAID = "\x00"
"""Stands for what somebody said, so that only the template's own text is judged."""
ODD = r"(?P<odd>\\[nrt]|[\r\u00a0\u00ad\u200b-\u200f\u2028\u2029\u2060-\u2064\ufeff])"
ROLE = r"(?i:user|human|assistant|model|system|tool|bot|gpt|ai)"
AFTER = re.compile(rf"(?:\A|[>\]{SAID}]{ROLE}?)[ \n]*{ODD}")
BEFORE = re.compile(rf"{ODD}[ \n]*(?:\Z|[<\[{SAID}])")


class OddText(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of odd text, with what stands around it."""

    text: str
    around: str

    @property
    def name(self) -> str:
        """For people."""
        if self.text.startswith("\\"):
            return f"a backslash and the letter {self.text[1]!r}"
        return f"U+{ord(self.text):04X} {unicodedata.name(self.text, 'CARRIAGE RETURN')}"


def odd_texts(rendered: str) -> Iterator[OddText]:
    """Odd text that touches a marker, a role, a message, or an end of the prompt; each kind once."""
    for said in (SYSTEM, QUESTION, ANSWER, FOLLOW_UP):
        rendered = rendered.replace(said, SAID)
    seen: set[str] = set()
    for pattern in (AFTER, BEFORE):
        for match in pattern.finditer(rendered):
            odd = match["odd"]
            if odd not in seen:
                seen.add(odd)
                around = rendered[max(0, match.start("odd") - 24) : match.end("odd") + 12]
                yield OddText(text=odd, around=around.replace(SAID, "…"))
