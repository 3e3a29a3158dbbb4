"""How many blocks are held over the life of a trace, in a picture of bounded size whatever the trace's.

Events fall into columns of equal width and blocks into rows of equal height; a cell has the largest number of its blocks that
were held at one moment of its events. A pool whose size is not declared doubles its rows as larger ids come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from degarble.trace.event import Alloc, Free, Meta, Ref
from degarble.trace.reader import read_items
from degarble.trace.replay import Verdict
from degarble.trace.violation import Violation

MAX_COLUMNS = 240
MAX_ROWS = 96
MAX_BLOCKS = 1 << 22
"""Blocks that are followed; further ids are counted and not drawn."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A violation in the picture."""

    column: int
    row: int | None
    violation: Violation


@dataclass(slots=True, kw_only=True)
class Occupancy:
    """The grid and its marks."""

    num_events: int
    events_a_column: int
    blocks_a_row: int
    num_blocks: int
    """Declared, or the largest id that came and one."""
    is_declared: bool
    grid: npt.NDArray[np.int64]
    """[rows, columns]: most blocks held at one moment."""
    peaks: npt.NDArray[np.int64]
    """[columns]: most blocks of the whole pool held at one moment."""
    marks: list[Mark] = field(default_factory=list)
    num_ignored: int = 0
    """Table entries with ids outside the pool."""

    @property
    def num_rows(self) -> int:
        """Rows that stand for blocks of the pool."""
        return -(-self.num_blocks // self.blocks_a_row)

    def events_of(self, column: int) -> tuple[int, int]:
        """First event of a column, and the one after its last."""
        begin = column * self.events_a_column
        return begin, min(begin + self.events_a_column, self.num_events)


class _Grid:
    """Counts as the events go by."""

    def __init__(self, num_blocks: int | None, num_columns: int) -> None:
        self.declared = num_blocks
        self.blocks_a_row = max(1, -(-(num_blocks or MAX_ROWS) // MAX_ROWS))
        self.grid = np.zeros((MAX_ROWS, num_columns), dtype=np.int64)
        self.peaks = np.zeros(num_columns, dtype=np.int64)
        self.held: npt.NDArray[np.int64] = np.zeros(MAX_ROWS, dtype=np.int64)
        self.total = 0
        self.references: dict[int, int] = {}
        self.largest = -1
        self.num_ignored = 0
        self.column = 0

    def row_of(self, block: int) -> int | None:
        """The row of a block; None for an id that is not drawn."""
        limit = self.declared if self.declared is not None else MAX_BLOCKS
        if not 0 <= block < min(limit, MAX_BLOCKS):
            return None
        self.largest = max(self.largest, block)
        while block >= self.blocks_a_row * MAX_ROWS:
            self._halve()
        return block // self.blocks_a_row

    def _halve(self) -> None:
        """Two rows become one. Peaks are added, which is an upper bound of the peak of both."""
        self.blocks_a_row *= 2
        for name in ("grid", "held"):
            old = getattr(self, name)
            new = np.zeros_like(old)
            new[: MAX_ROWS // 2] = old[0::2] + old[1::2]
            setattr(self, name, new)

    def change(self, block: int, by: int) -> None:
        """A table takes a block (+1) or lets go of it (-1)."""
        row = self.row_of(block)
        if row is None:
            self.num_ignored += by > 0
            return
        before = self.references.get(block, 0)
        after = max(0, before + by)
        self.references[block] = after
        if (before > 0) != (after > 0):
            step = 1 if after else -1
            self.held[row] += step
            self.total += step
            if step > 0:
                self.grid[row, self.column] = max(self.grid[row, self.column], self.held[row])
                self.peaks[self.column] = max(self.peaks[self.column], self.total)

    def move(self, column: int) -> None:
        """Go on to a later column; what is held stays held."""
        for at in range(self.column + 1, column + 1):
            self.grid[:, at] = self.held
            self.peaks[at] = self.total
        self.column = column


def read_occupancy(path: str, verdict: Verdict) -> Occupancy:
    """One pass over a trace that has been replayed. Raises TargetError if it cannot be read."""
    meta = verdict.meta
    sizes = [] if meta is None else [meta.num_blocks, *(group.num_blocks for group in meta.groups or ())]
    declared = max((size for size in sizes if size is not None and 0 < size <= MAX_BLOCKS), default=None)
    num_events = max(1, verdict.num_lines)
    width = -(-num_events // MAX_COLUMNS)
    grid = _Grid(declared, -(-num_events // width))
    waiting = sorted((v for v in verdict.violations), key=lambda violation: violation.line, reverse=True)
    marks: list[tuple[int, Violation]] = []
    index = 0
    for batch in read_items(path):
        for item in batch:
            column = min(index // width, grid.peaks.size - 1)
            if column != grid.column:
                grid.move(column)
            while waiting and item.n >= waiting[-1].line:
                marks.append((column, waiting.pop()))
            if isinstance(item, Alloc | Ref | Free):
                by = -1 if isinstance(item, Free) else 1
                for block in item.b:
                    grid.change(block, by)
            index += 1
    marks += [(grid.peaks.size - 1, violation) for violation in reversed(waiting)]
    return _finished(grid, num_events, width, marks, meta)


def _finished(
    grid: _Grid, num_events: int, width: int, marks: Sequence[tuple[int, Violation]], meta: Meta | None
) -> Occupancy:
    num_blocks = grid.declared if grid.declared is not None else max(1, grid.largest + 1)
    rows = [None if v.block is None else grid.row_of(v.block) for _, v in marks]
    return Occupancy(
        num_events=num_events,
        events_a_column=width,
        blocks_a_row=grid.blocks_a_row,
        num_blocks=num_blocks,
        is_declared=grid.declared is not None,
        grid=grid.grid[: max(1, -(-num_blocks // grid.blocks_a_row))],
        peaks=grid.peaks,
        marks=[Mark(column, row, violation) for (column, violation), row in zip(marks, rows, strict=True)],
        num_ignored=grid.num_ignored,
    )
