"""Blocks that leave a table. Judges KVC605 (freed by who does not hold it, counts) and KVC615 (a window's columns).

`free` with a column leaves a hole (a window column, or the source of a copy-on-write); without one it takes the end of
the row off.
"""

from __future__ import annotations

from degarble.trace.event import Free, TableChange
from degarble.trace.pool import Sequence, Table
from degarble.trace.state import State


class FreeJudge:
    """Takes blocks out of tables, and judges every move."""

    def __init__(self, state: State) -> None:
        self.state = state

    def on_free(self, event: Free) -> None:
        """Blocks leave a table: from the end, or from given columns."""
        state = self.state
        sequence = state.sequences.get(event.req)
        if sequence is None:
            if event.req in state.ended:
                self._freed_again(event, event.b[0] if event.b else None, str(event.req), "has ended")
            else:
                state.find(event, event.req)
            return
        table = state.table(sequence, event.g)
        columns = self._columns(table, event)
        for column, block_id in zip(columns, event.b, strict=True):
            if block_id == table.geometry.null_block or block_id == -1:
                continue
            if column is None or table.blocks[column] is None:
                if state.checked_block(event, block_id, sequence.name) is not None:
                    self._freed_again(event, block_id, sequence.name, "does not hold it")
                return
            self._leave(event, table, column)
        if event.at is None:
            self._shorten(event, table)
        elif any(block is not None for block in table.blocks):
            self._leave_holes(event, table, [column for column in columns if column is not None])
        self.compare_counts(event, sequence)

    def _columns(self, table: Table, event: Free) -> list[int | None]:
        """The columns that a free means: those given, else the last that holds each block (mostly: the end, backwards)."""
        blocks = table.blocks
        step = -1 if event.at is None else 1
        column = len(blocks) - 1 if event.at is None else event.at
        found: list[int | None] = []
        for block_id in event.b:
            held = blocks[column] if 0 <= column < len(blocks) else None
            found.append(column if held is not None and held.id == block_id else self._column_of(table, block_id))
            column += step
        return found

    @staticmethod
    def _column_of(table: Table, block_id: int) -> int | None:
        """The last column that holds a block."""
        blocks = table.blocks
        for column in range(len(blocks) - 1, -1, -1):
            held = blocks[column]
            if held is not None and held.id == block_id:
                return column
        return None

    def _leave(self, event: Free, table: Table, column: int) -> None:
        block = table.blocks[column]
        assert block is not None
        table.blocks[column] = None
        block.release(table)
        block.life.append((event.n, f"freed by {table.owner.name}"))
        if table.step is not None and table.step.is_open:
            block.reader = table.step
        table.dirty.discard(column)

    def _leave_holes(self, event: Free, table: Table, columns: list[int]) -> None:
        """Columns inside the row: of a window, which no query may need any more, or a copy-on-write's source.

        The column that is written next may be such a source: if nothing takes its place, the next forward says so.
        """
        geometry = table.geometry
        table.dirty.update(columns)
        if geometry.window is None or geometry.block_size == 0 or not columns:
            return
        table.null_end = max(table.null_end, (max(columns) + 1) * geometry.span)
        table.set_plain()
        first = geometry.first_read(table.settled)
        for column, block_id in zip(columns, event.b, strict=False):
            block = self.state.pool(event.g).block(block_id)
            start, end = column * geometry.span, (column + 1) * geometry.span
            if end > first and start < table.valid and not start <= table.settled < end:
                self.state.fail(
                    "KVC615",
                    event,
                    f"column {column} (positions {start} to {end - 1}) is freed while position {table.settled} of "
                    f"{table.owner.name} still reads from {first} on (window {geometry.window})",
                    request=table.owner.name,
                    block=block,
                    position=max(first, start),
                    measured={"last_freed_position": end - 1, "settled": table.settled},
                    bound={"last_free_position": first - 1},
                )

    def _shorten(self, event: Free, table: Table) -> None:
        blocks = table.blocks
        while blocks and blocks[-1] is None:
            blocks.pop()
            table.dirty.discard(len(blocks))
        if blocks and len(blocks) * table.geometry.span < table.valid and table.cut_at is None:
            table.cut_at = event.n
        table.dirty.update(c for c, held in enumerate(blocks) if held is None)

    def _freed_again(self, event: Free, block_id: int | None, name: str, why: str) -> None:
        block = None if block_id is None else self.state.pool(event.g).block(block_id)
        count = 0 if block is None else len(block.holders)
        self.state.fail(
            "KVC605",
            event,
            f"{name} frees block {block_id} and {why}: it was freed before, or never taken",
            request=name,
            block=block,
            measured={"ref_count": count, "freed_by_non_holder": 1},
            bound={"freed_by_non_holder": 0},
        )

    def compare_counts(self, event: TableChange, sequence: Sequence) -> None:
        """The engine's own counts (`rc`) are the numbers of table entries after the event."""
        if event.rc is None:
            return
        blocks = self.state.pool(event.g).blocks
        for block_id, told in zip(event.b, event.rc, strict=False):
            block = blocks.get(block_id)
            if block is not None and len(block.holders) != told:
                self.state.fail(
                    "KVC605",
                    event,
                    f"the engine counts {told} references to block {block_id}, {len(block.holders)} table entries "
                    "hold it",
                    request=sequence.name,
                    block=block,
                    measured={"ref_count": told},
                    bound={"ref_count": len(block.holders)},
                )
                return
