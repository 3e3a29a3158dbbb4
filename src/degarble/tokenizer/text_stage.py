"""One step of a text pipeline that works on chunks: what it holds back, and where its output came from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from degarble.tokenizer.change_log import ChangeLog
from degarble.tokenizer.edits import Edits, PositionMap
from degarble.tokenizer.sanitize_policy import Kind, SanitizePolicy, SanitizeRejected


class TextStage(ABC):
    """Takes text, gives text; keeps the map from its output back to its input."""

    def __init__(self, policy: SanitizePolicy, log: ChangeLog, before: Sequence[TextStage] = ()) -> None:
        self._policy = policy
        self._log = log
        self._before = tuple(before)
        self._given = 0
        self._held = ""
        self.num_taken = 0
        """Characters taken before those that are held."""
        self.origins = PositionMap()

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
        self.num_taken += cut
        self._given += len(out)
        return out

    def _changed(self, text: str, out: str, counts: Mapping[Kind, int], find_edits: Callable[[], Edits]) -> str:
        """Note what made `out` of `text`; return `out`. Edits are found only where positions are needed."""
        for kind, number in counts.items():
            self._log.counts[kind.value] += number
        if self._log.needs_positions:
            edits = find_edits()
            self._log.add(text, self.num_taken, out, edits, [stage.origins for stage in self._before])
            self.origins = self.origins.extended(edits, self.num_taken, self._given)
        return out

    def _reject(self, kind: Kind, text: str, start: int, end: int) -> NoReturn:
        """Raise SanitizeRejected for a stretch of what is worked on."""
        position = self.num_taken + start
        for stage in reversed(self._before):
            position = stage.origins.origin(position)
        raise SanitizeRejected(kind, position, text[start:end])

    @abstractmethod
    def _num_to_hold(self, text: str) -> int:
        """How many characters at the end of the text have to wait."""

    @abstractmethod
    def _work(self, text: str) -> str:
        """Change text whose end is certain."""
