"""Characters that have no place in a prompt or an answer, found by one regular expression over the text.

Most kinds are harmful wherever they stand. Zero-width characters and variation selectors are harmful only in a row, for
alone they join emoji and letters; private-use characters only beyond a number; tag characters only outside a flag. The
expression therefore finds *clusters* (a harmful character with its neighbours, or a row), and Python looks at these only.
"""

from __future__ import annotations

import re

from degarble.tokenizer.sanitize_policy import Kind, Report, SanitizePolicy, SanitizeRejected
from degarble.tokenizer.text_stage import TextStage
from degarble.tokenizer.utf8 import REPLACEMENT_CHAR

BIDI = "\u202a-\u202e\u2066-\u2069"
SURROGATES = "\ud800-\udfff"
PRIVATE_USE = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
NONCHARACTERS = "\ufdd0-\ufdef" + "".join(f"{chr(p << 16 | 0xFFFE)}{chr(p << 16 | 0xFFFF)}" for p in range(17))
ZERO_WIDTH = "\u180e\u200b-\u200d\u2060-\u2064\ufeff"
TAGS = "\U000e0000-\U000e007f"
VARIATION_SELECTORS = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
BLACK_FLAG = "\U0001f3f4"
MAX_FLAG_TAGS = 6
"""Subdivision flags spell a region of at most six letters and digits, then U+E007F."""
_FLAG = f"{BLACK_FLAG}[\U000e0020-\U000e007e]{{1,{MAX_FLAG_TAGS}}}\U000e007f"
_OPEN_FLAG = re.compile(f"{BLACK_FLAG}[\U000e0020-\U000e007e]{{0,{MAX_FLAG_TAGS}}}\\Z")
_ASCII_CONTROLS = frozenset(map(chr, (*range(32), 127)))


class HarmfulCharacters(TextStage):
    """Removes, replaces or rejects them by a policy."""

    def __init__(self, policy: SanitizePolicy, report: Report) -> None:
        super().__init__(report)
        self._policy = policy
        self._num_private_use = 0
        self._row = ""  # group of the row (zero_width or variation) that reaches the end of what was taken
        classes = _classes(policy)
        always = "".join(classes[name] for name in classes if name not in _ROWS)
        rows = "".join(classes[name] for name in classes if name in _ROWS)
        near = f"[{rows}]*+" if rows else ""
        row = f"|[{rows}]{{2,}}" if rows else ""
        flag = f"{_FLAG}|" if Kind.HIDDEN.name in classes else ""
        self._has_flags = bool(flag)
        self._clusters = re.compile(f"(?P<flag>{flag[:-1] or '(?!)'})|{near}[{always}][{always}{rows}]*{row}")
        self._goes_on = re.compile(f"[{always}{rows}]+")
        self._runs = re.compile("|".join(f"(?P<{name}>[{members}]+)" for name, members in classes.items()))
        self._ascii = re.compile(f"[{always}]")

    def _num_to_hold(self, text: str) -> int:
        if not self._has_flags or text.isascii():
            return 0
        flag = _OPEN_FLAG.search(text, max(0, len(text) - MAX_FLAG_TAGS - 1))
        return len(text) - flag.start() if flag else 0

    def _work(self, text: str) -> str:
        if text.isascii() and not self._row and not self._ascii.search(text):
            return text
        edits: list[tuple[int, int, str, str]] = []
        end = 0
        if self._row and (cluster := self._goes_on.match(text)):
            end = self._judge(cluster[0], 0, edits)
        if end < len(text):
            self._row = ""
            for found in self._clusters.finditer(text, end):
                self._row = ""
                end = found.end()
                if found.lastgroup != "flag":
                    self._judge(found[0], found.start(), edits)
            if end < len(text):
                last = self._runs.match(text[-1])
                self._row = last.lastgroup or "" if last and last.lastgroup in _ROWS else ""
        return self._edit(text, edits) if edits else text

    def _judge(self, cluster: str, start: int, edits: list[tuple[int, int, str, str]]) -> int:
        """Note what has to change in one cluster; returns its end."""
        for run in self._runs.finditer(cluster):
            group = str(run.lastgroup)
            kind = _KINDS[group]
            keep = self._num_kept(group, len(run[0]))
            if group in _ROWS:
                self._row = group
            elif keep or self._policy.action(kind) == "replace":
                self._row = ""
            if keep < len(run[0]):
                edits.append(self._edit_of(kind, run[0][keep:], start + run.start() + keep))
        return start + len(cluster)

    def _num_kept(self, group: str, length: int) -> int:
        """How many characters at the start of a run may stay."""
        if group in _ROWS:
            return 0 if self._row == group else 1
        if group != Kind.PRIVATE_USE.name:
            return 0
        keep = min(length, self._policy.max_private_use - self._num_private_use)
        self._num_private_use += keep
        return keep

    def _edit_of(self, kind: Kind, found: str, start: int) -> tuple[int, int, str, str]:
        action = self._policy.action(kind)
        if action == "reject":
            raise SanitizeRejected(kind, self._taken + start, found)
        return start, start + len(found), REPLACEMENT_CHAR * len(found) if action == "replace" else "", kind


_ROWS = ("ZERO_WIDTH", "VARIATION")
_KINDS = {**{kind.name: kind for kind in Kind}, "VARIATION": Kind.HIDDEN}


def _classes(policy: SanitizePolicy) -> dict[str, str]:
    """Group name -> members of a character class, for the kinds that the policy does not keep."""
    controls = "".join(map(chr, (*range(32), *range(0x7F, 0xA0))))
    kept = set(policy.keep_controls)
    members = {
        Kind.CONTROL: "".join(re.escape(char) for char in controls if char not in kept),
        Kind.BIDI: BIDI,
        Kind.SURROGATE: SURROGATES,
        Kind.NONCHARACTER: NONCHARACTERS,
        Kind.PRIVATE_USE: PRIVATE_USE,
        Kind.HIDDEN: TAGS,
        Kind.ZERO_WIDTH: ZERO_WIDTH,
    }
    classes = {kind.name: text for kind, text in members.items() if text and policy.action(kind) != "keep"}
    if Kind.HIDDEN.name in classes:
        classes["VARIATION"] = VARIATION_SELECTORS
    return classes
