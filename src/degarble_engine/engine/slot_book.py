"""Where the rows of each request lie: one array a request, to which a step adds its new slots and nothing else.

Asking the block manager for all slots of all requests in every step costs a Python call a row. What was noted stays true
but in three cases, in which it is asked again: the request was preempted, a shared block was copied, or rows begin beyond
what is known here.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt

from degarble.errors import BlockMisuse
from degarble.kvcache.block_manager import BlockManager
from degarble_engine.engine.scheduler import Scheduled

Slots = npt.NDArray[np.int64]
FIRST_ROOM = 256


class _Page:
    """One request's slots, by position."""

    def __init__(self, num_preemptions: int) -> None:
        self.num_preemptions = num_preemptions
        self.slots: Slots = np.zeros(FIRST_ROOM, np.int64)
        self.length = 0

    def put(self, start: int, new: Sequence[int]) -> None:
        """Slots of positions from `start` on; what was known behind them is forgotten."""
        end = start + len(new)
        if end > len(self.slots):
            self.slots = np.concatenate([self.slots[:start], np.zeros(2 * end - start, np.int64)])
        self.slots[start:end] = new
        self.length = end


class SlotBook:
    """Of all requests that were computed."""

    def __init__(self, manager: BlockManager) -> None:
        self._manager = manager
        self._pages: dict[str, _Page] = {}

    def slots(self, part: Scheduled) -> tuple[int, Slots]:
        """The first position that is still held, and the slots from there to the end of the part's work."""
        work, request = part.work, part.request
        sequence = self._manager.sequence(work.request)
        first = sequence.start_of(sequence.num_evicted) if sequence.num_evicted else 0
        page = self._pages.get(work.request)
        if page is None or page.num_preemptions != request.num_preemptions or work.copies or work.start > page.length:
            page = self._pages[work.request] = _Page(request.num_preemptions)
            page.put(first, sequence.slots(first, work.end))
        else:
            page.put(work.start, work.slots)
        return first, page.slots[first : work.end]

    def forget_all_but(self, names: Set[str]) -> None:
        """Drop what ended."""
        for name in self._pages.keys() - names:
            del self._pages[name]

    def check(self, part: Scheduled) -> None:
        """Raises BlockMisuse where the block manager says otherwise."""
        first, slots = self.slots(part)
        wanted = self._manager.sequence(part.work.request).slots(first, part.work.end)
        if slots.tolist() != wanted:
            at = next(
                place for place, pair in enumerate(zip(slots.tolist(), wanted, strict=True)) if pair[0] != pair[1]
            )
            raise BlockMisuse(
                f"{part.work.request!r}: position {first + at} was noted at slot {slots[at]}, "
                f"the block table says {wanted[at]}"
            )
