"""Stop strings in a stream: held back exactly while they may still come, never printed in part.

A delta may end inside a stop string, so text that could be its beginning has to wait: the longest end of the text so
far that is a proper beginning of some stop string, and nothing more. Where several could match, the one that is
complete first wins, and of those that end together the longest; so the result does not depend on how the text was
cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from degarble.errors import UsageError


class StopStrings:
    """The stop strings of a request, prepared once."""

    def __init__(self, stops: Iterable[str]) -> None:
        self.stops = tuple(dict.fromkeys(stops))
        if "" in self.stops:
            raise UsageError("an empty stop string would end every text before it begins")
        self.beginnings = frozenset(stop[:length] for stop in self.stops for length in range(1, len(stop)))
        self.longest = max((len(stop) for stop in self.stops), default=0)
        openings = "".join(re.escape(stop[0]) for stop in self.stops)
        self.may_begin = re.compile(f"[{openings}]" if openings else "(?!)").search
        """Whether any stop string may begin in a text; most deltas hold none of these characters."""
        self._last_chars = frozenset(beginning[-1] for beginning in self.beginnings)

    def stream(self) -> StopStream:
        """Start watching one text."""
        return StopStream(self)

    def find(self, text: str) -> tuple[int, int] | None:
        """Start and end of the match that is complete first; of several that end there, the longest."""
        found = [(at + len(stop), at) for stop in self.stops if (at := text.find(stop)) >= 0]
        if not found:
            return None
        end, start = min(found)
        return start, end

    def num_held(self, text: str) -> int:
        """How many characters at the end of a text without a match may belong to a stop string."""
        if not text or text[-1] not in self._last_chars:
            return 0
        for length in range(min(self.longest - 1, len(text)), 0, -1):
            if text[-length:] in self.beginnings:
                return length
        return 0


class StopStream:
    """One text that ends before the first stop string."""

    __slots__ = ("_held", "_stops", "matched")

    def __init__(self, stops: StopStrings) -> None:
        self._stops = stops
        self._held = ""
        self.matched: str | None = None
        """The stop string that ended the text; what is pushed after it is ignored."""

    def push(self, delta: str) -> str:
        """Take text, return what may be shown."""
        if self.matched is not None or not delta:
            return ""
        if not self._held and self._stops.may_begin(delta) is None:
            return delta
        text = self._held + delta
        found = self._stops.find(text)
        if found is not None:
            self.matched, self._held = text[found[0] : found[1]], ""
            return text[: found[0]]
        held = self._stops.num_held(text)
        cut = len(text) - held
        self._held = text[cut:]
        return text[:cut]

    def finish(self) -> str:
        """The text ended without a stop string: what was held back belongs to it."""
        rest, self._held = self._held, ""
        return rest
