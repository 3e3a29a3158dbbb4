"""Characters that have no place in a prompt or an answer, found by one regular expression over the text.

Most kinds are harmful wherever they stand. Zero-width characters and variation selectors are harmful only in a row, for
alone they join emoji and letters; private-use characters only beyond a number; tag characters only outside a flag. The
expression therefore finds *clusters* of characters that may be harmful, and Python judges these.
"""

from __future__ import annotations

import re
from functools import lru_cache

from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy, SanitizeRejected
from degarble.tokenizer.text_stage import Edit, Report, TextStage
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
_FLAG = re.compile(f"{BLACK_FLAG}[\U000e0020-\U000e007e]{{1,{MAX_FLAG_TAGS}}}\U000e007f")
_OPEN_FLAG = re.compile(f"{BLACK_FLAG}[\U000e0020-\U000e007e]{{0,{MAX_FLAG_TAGS}}}\\Z")
_ABOVE_BMP = re.compile("[\U00010000-\U0010ffff](-[\U00010000-\U0010ffff])?")
_ASTRAL = "\U0001fffe\U0001ffff\U0002fffe\U0002ffff\U0003fffe-\U0010ffff"
"""All that may be harmful above U+FFFF, in few ranges: `re` has a bitmap for characters below, and a list for these."""


class HarmfulCharacters(TextStage):
    """Removes, replaces or rejects them by a policy."""

    def __init__(self, policy: SanitizePolicy, report: Report) -> None:
        super().__init__(report)
        self._policy = policy
        self._num_private_use = 0
        self._row = ""  # group of the row (zero_width or variation) that reaches the end of what was taken
        self._ascii, self._clusters, self._runs = patterns(policy)
        self._has_flags = policy.hidden != "keep"

    def _num_to_hold(self, text: str) -> int:
        if not self._has_flags or text.isascii():
            return 0
        flag = _OPEN_FLAG.search(text, max(0, len(text) - MAX_FLAG_TAGS - 1))
        return len(text) - flag.start() if flag else 0

    def _work(self, text: str) -> str:
        edits: list[Edit] = []
        end = 0
        for cluster in (self._ascii if text.isascii() else self._clusters).finditer(text):
            start, before = cluster.start(), end
            end = cluster.end()
            if start > before:
                self._row = ""
            if end - start == 1 and (group := _ROW_OF.get(text[start])) and group != self._row:
                self._row = group  # a joiner on its own, the common case
                continue
            if start and text[start - 1] == BLACK_FLAG and self._has_flags and (flag := _FLAG.match(text, start - 1)):
                start = flag.end()
            if not self._is_harmless(text[start:end]):
                self._judge(text, start, end, edits)
        if end < len(text):
            self._row = ""
        return self._edit(text, edits) if edits else text

    def _is_harmless(self, cluster: str) -> bool:
        """The common case, seen at a glance: a joiner, or a selector and a joiner, once each."""
        if len(cluster) > MAX_GLANCE:
            return False
        row = self._row
        for char in cluster:
            group = _ROW_OF.get(char)
            if group is None or group == row:
                return False
            row = group
        self._row = row
        return True

    def _judge(self, text: str, start: int, end: int, edits: list[Edit]) -> None:
        """Note what has to change in one cluster."""
        done = start
        for run in self._runs.finditer(text, start, end):
            if run.start() > done:
                self._row = ""
            done = run.end()
            group = str(run.lastgroup)
            kind = _KINDS[group]
            keep = self._num_kept(group, len(run[0]))
            if group in _ROWS:
                self._row = group
            elif keep or self._policy.action(kind) == "replace":
                self._row = ""
            if keep < len(run[0]):
                edits.append(self._edit_of(kind, run[0][keep:], run.start() + keep))
        if done < end:
            self._row = ""

    def _num_kept(self, group: str, length: int) -> int:
        """How many characters at the start of a run may stay."""
        if group in _ROWS:
            return 0 if self._row == group else 1
        if group != Kind.PRIVATE_USE.name:
            return 0
        keep = min(length, self._policy.max_private_use - self._num_private_use)
        self._num_private_use += keep
        return keep

    def _edit_of(self, kind: Kind, found: str, start: int) -> Edit:
        action = self._policy.action(kind)
        if action == "reject":
            raise SanitizeRejected(kind, self._taken + start, found)
        return start, start + len(found), REPLACEMENT_CHAR * len(found) if action == "replace" else "", kind.value


MAX_GLANCE = 4
_ROW_OF = {
    **dict.fromkeys("\u180e\u200b\u200c\u200d\u2060\u2061\u2062\u2063\u2064\ufeff", "ZERO_WIDTH"),
    **{chr(code): "VARIATION" for code in range(0xFE00, 0xFE10)},
}
_ROWS = ("ZERO_WIDTH", "VARIATION")
_KINDS = {**{kind.name: kind for kind in Kind}, "VARIATION": Kind.HIDDEN}


@lru_cache(maxsize=32)
def patterns(policy: SanitizePolicy) -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """What may be harmful in ASCII text, and in any; runs of one kind within that."""
    classes = _classes(policy)
    suspects = _ABOVE_BMP.sub("", "".join(classes.values())) + _ASTRAL
    runs = "|".join(f"(?P<{name}>[{members}]+)" for name, members in classes.items())
    controls = classes.get(Kind.CONTROL.name)
    return (
        re.compile(f"[{controls}]+" if controls else "(?!)"),
        re.compile(f"[{suspects}][{suspects}]*"),
        re.compile(runs or "(?!)"),
    )


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
