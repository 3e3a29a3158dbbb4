"""Which characters may be harmful, and in which way.

Some are harmful wherever they stand. Zero-width characters and variation selectors are so only in a row, for alone they
join emoji and letters; private-use characters only beyond a number; tag characters only outside a flag.
"""

from __future__ import annotations

import re
import sys
from enum import IntEnum
from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.code_points import SHORT, one_of
from degarble.tokenizer.sanitize_policy import KINDS, Action, Kind, SanitizePolicy

Ranges = tuple[tuple[int, int], ...]


class Group(IntEnum):
    """Characters that are judged alike. From CONTROL on they are harmful wherever they stand."""

    HARMLESS = 0
    ZERO_WIDTH = 1
    VARIATION = 2
    PRIVATE_USE = 3
    CONTROL = 4
    BIDI = 5
    SURROGATE = 6
    NONCHARACTER = 7
    TAG = 8


MEMBERS: dict[Group, tuple[Kind, Ranges]] = {
    Group.ZERO_WIDTH: (
        Kind.ZERO_WIDTH,
        ((0x180E, 0x180E), (0x200B, 0x200D), (0x2060, 0x2064), (0xFEFF, 0xFEFF)),
    ),
    Group.VARIATION: (Kind.HIDDEN, ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF))),
    Group.PRIVATE_USE: (Kind.PRIVATE_USE, ((0xE000, 0xF8FF), (0xF0000, 0xFFFFD), (0x100000, 0x10FFFD))),
    Group.CONTROL: (Kind.CONTROL, ((0x00, 0x1F), (0x7F, 0x9F))),
    Group.BIDI: (Kind.BIDI, ((0x202A, 0x202E), (0x2066, 0x2069))),
    Group.SURROGATE: (Kind.SURROGATE, ((0xD800, 0xDFFF),)),
    Group.NONCHARACTER: (
        Kind.NONCHARACTER,
        ((0xFDD0, 0xFDEF), *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(17))),
    ),
    Group.TAG: (Kind.HIDDEN, ((0xE0000, 0xE007F),)),
}
"""Group -> its kind, and the first and last of each stretch of code points."""


def members_of(group: Group) -> str:
    """The members, as they stand in a character class of a regular expression."""
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in MEMBERS[group][1])


class CharacterGroups(msgspec.Struct, frozen=True):
    """A policy made ready for texts."""

    group_of: NDArray[np.uint8]
    """Code point -> group; what the policy keeps is harmless."""
    kinds: NDArray[np.uint8]
    """Group -> place in KINDS."""
    is_replaced: NDArray[np.bool_]
    is_rejected: NDArray[np.bool_]
    """Groups that are not removed when harmful."""
    ascii_suspects: bytes
    suspect: re.Pattern[str]
    """What may be harmful: characters in some group, but not a joiner or a selector alone."""

    def is_clean_at_a_glance(self, text: str) -> bool:
        """Whether nothing is harmful in ASCII or in a short text, seen without arrays."""
        if text.isascii():
            return len(text.encode().translate(None, self.ascii_suspects)) == len(text)
        return len(text) <= SHORT and not self.suspect.search(text)


@lru_cache(maxsize=16)
def groups_of(policy: SanitizePolicy) -> CharacterGroups:
    """One set for all texts of a policy."""
    group_of = np.zeros(sys.maxunicode + 1, np.uint8)
    kinds = np.zeros(len(Group), np.uint8)
    actions: list[Action] = ["keep"] * len(Group)
    for group, (kind, ranges) in MEMBERS.items():
        kinds[group] = KINDS.index(kind)
        actions[group] = policy.action(kind)
        if actions[group] != "keep":
            for first, last in ranges:
                group_of[first : last + 1] = group
    controls = group_of[:0xA0]
    controls[[ord(char) for char in policy.keep_controls if ord(char) < len(controls)]] = Group.HARMLESS
    return CharacterGroups(
        group_of=group_of,
        kinds=kinds,
        is_replaced=np.array([action == "replace" for action in actions]),
        is_rejected=np.array([action == "reject" for action in actions]),
        ascii_suspects=bytes(np.flatnonzero(group_of[:0x80]).tolist()),
        suspect=_suspect(group_of),
    )


def _suspect(group_of: NDArray[np.uint8]) -> re.Pattern[str]:
    rows = [f"{one_of(group_of == group)}{{2}}" for group in (Group.ZERO_WIDTH, Group.VARIATION)]
    return re.compile("|".join([one_of(group_of > Group.VARIATION), *rows]))
