"""What a sanitiser changed: all of it counted, the first places listed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from degarble.tokenizer.edits import Edits, PositionMap
from degarble.tokenizer.sanitize_policy import KINDS

MAX_CHANGES = 1000
"""Changes that are listed; all are counted."""


class Change(msgspec.Struct, frozen=True):
    """One place where text was changed, or special-token text was seen. Positions are code points of the input.

    A change that spans others came after them: `old` is what they left, and `new` stands for all of them.
    """

    kind: str
    start: int
    end: int
    old: str
    new: str


class ChangeLog:
    """Filled by the steps of one stream."""

    def __init__(self, room: int = MAX_CHANGES, *, may_reject: bool = False) -> None:
        self.counts: Counter[str] = Counter()
        self._room = room
        self.may_reject = may_reject
        """Whether the text may be refused, for which its place is needed."""
        self._listed: list[tuple[int, Change]] = []

    @property
    def needs_positions(self) -> bool:
        """Whether steps still have to work out where they change something."""
        return self.may_reject or len(self._listed) < self._room

    def add(self, text: str, taken: int, out: str, edits: Edits, maps: Sequence[PositionMap]) -> None:
        """List edits that made `out` of `text`, which begins at `taken` behind these maps of the steps before."""
        edits = edits.first(max(0, self._room - len(self._listed)))
        places = edits.spans[:2] + taken
        for position_map in reversed(maps):
            places = position_map.origins(places)
        found = zip(edits.kinds.tolist(), places.T.tolist(), edits.spans.T.tolist(), strict=True)
        for kind, (start, end), (old, old_end, new, new_end) in found:
            change = Change(KINDS[kind].value, start, end, text[old:old_end], out[new:new_end])
            self._listed.append((len(maps), change))

    @property
    def changes(self) -> tuple[Change, ...]:
        """Those listed so far in the order of the text; what spans others, or came later, before these."""
        self._listed.sort(key=lambda listed: (listed[1].start, -listed[1].end, -listed[0]))
        return tuple(change for _, change in self._listed)
