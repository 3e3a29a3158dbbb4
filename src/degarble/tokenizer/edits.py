"""Changes to one text as arrays, and the way back from positions after them to positions before.

A text may need a change at every second character. Arrays keep that as fast as the search for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from degarble.tokenizer.code_points import Positions
from degarble.tokenizer.sanitize_policy import KINDS, Kind


class Edits(msgspec.Struct, frozen=True):
    """In order and apart from each other, none of an empty stretch. Half-open, in code points."""

    spans: Positions
    """[4, edits]: start and end of what is replaced, start and end of the new text after all edits."""
    kinds: NDArray[np.uint8]
    """Places in `sanitize_policy.KINDS`."""

    @classmethod
    def sized(cls, starts: Positions, ends: Positions, sizes: Positions, kinds: NDArray[np.uint8]) -> Edits:
        """Edits that put `sizes` characters between each start and end."""
        new_ends = ends + np.cumsum(sizes - (ends - starts))
        return cls(np.array((starts, ends, new_ends - sizes, new_ends)), kinds)

    @classmethod
    def of_kind(cls, kind: Kind, starts: Positions, ends: Positions, sizes: Positions) -> Edits:
        """Edits that are all of one kind."""
        return cls.sized(starts, ends, sizes, np.full(len(starts), KINDS.index(kind), np.uint8))

    def first(self, number: int) -> Edits:
        """So many of them."""
        return Edits(self.spans[:, :number], self.kinds[:number])


@dataclass(frozen=True, slots=True)
class PositionMap:
    """Where the output of one step of a pipeline came from; never changed, so that an old one can be kept.

    What stands inside the new text of an edit came from all that the edit replaced.
    """

    spans: Positions = field(default_factory=lambda: np.zeros((4, 1), np.int64))
    """As in Edits, for the whole input; begins with an edit that does nothing, until that is forgotten."""

    def __len__(self) -> int:
        return len(self.spans[0])

    def extended(self, edits: Edits, taken: int, given: int) -> PositionMap:
        """With the edits of a text that begins at `taken` in the input and at `given` in the output."""
        old, new = self.spans, edits.spans + np.array([[taken], [taken], [given], [given]])
        (last, last_end), (first, first_end) = old[2:, -1].tolist(), new[2:, 0].tolist()
        if last == last_end == first == first_end:  # two removals in a row are one: a stream may have any number
            new[0, 0] = old[0, -1]
            old = old[:, :-1]
        return PositionMap(np.concatenate((old, new), axis=1))

    def origins(self, stretches: Positions) -> Positions:
        """[2, stretches] from start and end in the output to start and end in the input.

        What was removed right before or right after a stretch is not in it.
        """
        starts, ends, new_starts, new_ends = self.spans
        first_and_last = stretches - np.array([[0], [1]])
        at = np.searchsorted(new_starts, first_and_last, side="right") - 1
        inside = np.array((starts[at[0]], ends[at[1]]))
        return np.where(first_and_last < new_ends[at], inside, ends[at] + stretches - new_ends[at])

    def origin(self, given: int) -> int:
        """The input position of one stretch that begins here."""
        return int(self.origins(np.array([[given], [given + 1]]))[0, 0])

    def without_before(self, given: int) -> PositionMap:
        """Without what no question about this output position or a later one needs."""
        first = int(np.searchsorted(self.spans[2], given, side="right")) - 1
        return PositionMap(self.spans[:, first:].copy())
