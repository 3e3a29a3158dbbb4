"""One step of a text pipeline that works on chunks: what it holds back, and where its output came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Sequence

Edit = tuple[int, int, str, str]
"""Start and end in the text, what stands there now, and the kind of fault. Half-open, in code points."""
Report = Callable[[str, int, Sequence[Edit]], None]
"""Text before the edits, its position in all that the stage was given, and the edits."""

MAX_REMEMBERED_SHIFTS = 4096


class TextStage(ABC):
    """Takes text, gives text; keeps the map from its output back to its input."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._taken = 0  # characters taken before what is held
        self._given = 0
        self._given_at = [0]  # breakpoints: output position …
        self._taken_at = [0]  # … and the input position that belongs to it
        self._held = ""

    @property
    def num_held(self) -> int:
        """Characters that wait for what comes next."""
        return len(self._held)

    def push(self, text: str) -> str:
        """Take text, return what is certain now."""
        return self._advance(self._held + text if self._held else text, final=False)

    def finish(self, text: str = "") -> str:
        """Take the last text, return all that is left."""
        return self._advance(self._held + text if self._held else text, final=True)

    def _advance(self, text: str, *, final: bool) -> str:
        if not text:
            return ""
        cut = len(text) if final else len(text) - self._num_to_hold(text)
        self._held = text[cut:]
        if not cut:
            return ""
        out = self._work(text[:cut] if cut < len(text) else text)
        self._taken += cut
        self._given += len(out)
        return out

    def position_of(self, given: int) -> int:
        """Input position of an output position."""
        at = bisect_right(self._given_at, given) - 1
        return self._taken_at[at] + given - self._given_at[at]

    def forget(self) -> None:
        """Drop breakpoints that no later stage can ask for any more."""
        if len(self._given_at) > MAX_REMEMBERED_SHIFTS:
            del self._given_at[1:-MAX_REMEMBERED_SHIFTS]
            del self._taken_at[1:-MAX_REMEMBERED_SHIFTS]

    def _edit(self, text: str, edits: Sequence[Edit]) -> str:
        """Apply edits, in order and apart from each other, and report them."""
        parts: list[str] = []
        done, given = 0, self._given
        for start, end, new, _ in edits:
            parts += (text[done:start], new)
            given += start - done + len(new)
            self._given_at.append(given)
            self._taken_at.append(self._taken + end)
            done = end
        parts.append(text[done:])
        self._report(text, self._taken, edits)
        return "".join(parts)

    @abstractmethod
    def _num_to_hold(self, text: str) -> int:
        """How many characters at the end of the text have to wait."""

    @abstractmethod
    def _work(self, text: str) -> str:
        """Change text whose end is certain."""
