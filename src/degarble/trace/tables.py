"""Requests and block tables: req, alloc, ref, free. Judges KVC605, and what touching a block may break.

`free` with a column leaves a hole (a window column, or the source of a copy-on-write); without one it takes the end of
the row off. The engine's own counts (`rc`) must equal the number of table entries after the event.
"""

from __future__ import annotations

from degarble.trace.event import Alloc, Free, Ref, Req, TableChange
from degarble.trace.namespace import base_of
from degarble.trace.pool import Block, Sequence, Table
from degarble.trace.state import State

LIVE = ("new", "resume", "fork", "preempt", "finish", "abort")


class TableJudge:
    """Moves tables and counts, and judges every move."""

    def __init__(self, state: State) -> None:
        self.state = state

    def on_req(self, event: Req) -> None:
        """A request begins, pauses, goes on or ends."""
        if event.op in ("new", "fork"):
            self._begin(event)
            return
        if event.op not in LIVE:
            self.state.fail("KVC623", event, f"req has the unknown op {event.op[:40]!r}", request=str(event.req))
            return
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        if event.op == "resume":
            sequence.is_running = True
            return
        self._holds_none(event, sequence)
        if event.op == "preempt":
            sequence.is_running = False
            for table in sequence.tables.values():
                table.clear()
        else:
            self.state.end(event.req, event.n)

    def _begin(self, event: Req) -> None:
        state = self.state
        if event.req in state.sequences:
            state.fail("KVC623", event, f"request {event.req!r} begins while it is live", request=str(event.req))
            self._drop(state.sequences[event.req])
        parent = None
        if event.op == "fork":
            parent = None if event.parent is None else state.sequences.get(event.parent)
            if parent is None:
                state.fail("KVC623", event, f"fork of {event.parent!r}, which is not live", request=str(event.req))
        base = parent.base if parent is not None and event.ns is None else base_of(event.ns)
        ids = event.ids
        if ids is None:
            values = list(parent.values) if parent is not None else []
        else:
            values = [base + token for token in ids] if base else list(ids)
        offset = event.rope_offset or 0
        if parent is not None and event.rope_offset is None:
            offset = parent.rope_offset
        sequence = Sequence(event.req, values, base, offset, is_blind=ids is None and parent is None)
        state.sequences[event.req] = sequence
        for g in state.groups if parent is not None else ():
            table = state.table(sequence, g)
            if parent is not None and g in parent.tables:
                table.valid = table.lo = max(0, min(parent.tables[g].valid, len(values) - 1))

    def _holds_none(self, event: Req, sequence: Sequence) -> None:
        held = self._drop(sequence)
        if held:
            self.state.fail(
                "KVC605",
                event,
                f"{event.op} of {sequence.name} while its table still holds {len(held)} blocks "
                f"({', '.join(str(block.id) for block in held[:8])}): `free` comes before",
                request=sequence.name,
                block=held[0],
                measured={"blocks_held": len(held)},
                bound={"blocks_held": 0},
            )

    def _drop(self, sequence: Sequence) -> list[Block]:
        held = []
        for table in sequence.tables.values():
            for block in table.blocks:
                if block is not None:
                    held.append(block)
                    block.release(table)
            table.blocks = []
        return held

    def on_alloc(self, event: Alloc) -> None:
        """Blocks that must be free, unpublished and unread enter a table."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        table = self.state.table(sequence, event.g)
        column = len(table.blocks) if event.at is None else event.at
        geometry = table.geometry
        for block_id in event.b:
            if block_id == geometry.null_block:
                self.state.fail(
                    "KVC603",
                    event,
                    f"the null block {block_id} is handed out to {sequence.name}",
                    request=sequence.name,
                    block=block_id,
                )
            block = self.state.checked_block(event, block_id, sequence.name)
            if block is not None:
                self._is_free(event, block, sequence)
                block.rows = []
                block.write = None
                block.step = block.reader = None
                self._enter(event, table, column, block, "allocated by")
            column += 1
        self._compare_counts(event, sequence)

    def _is_free(self, event: Alloc, block: Block, sequence: Sequence) -> None:
        """Free once, nobody reads it, and the prefix map has let go of it."""
        state = self.state
        name = sequence.name
        if block.holders:
            holders = ", ".join(sorted({table.owner.name for table in block.holders}))
            state.fail(
                "KVC605",
                event,
                f"block {block.id} is handed out to {name} while {holders} holds it: it was free in no list",
                request=name,
                block=block,
                measured={"ref_count": len(block.holders)},
                bound={"ref_count": 0},
            )
            for table in block.holders:
                table.dirty.update(c for c, held in enumerate(table.blocks) if held is block)
            return
        user = self._user_of(block)
        if user is not None:
            state.fail(
                "KVC617",
                event,
                f"block {block.id} is handed out to {name} while {user} still uses it",
                request=name,
                block=block,
            )
        if block.entry is not None:
            state.fail(
                "KVC627",
                event,
                f"block {block.id} is handed out to {name} for new content while the prefix map still leads to it: "
                "no evict came before",
                request=name,
                block=block,
            )
            block.entry.drop(block)

    def _user_of(self, block: Block) -> str | None:
        """The open step or transfer that reads or writes a free block."""
        if block.reader is not None and block.reader.is_open:
            return f"step {block.reader.name}, which began at {block.reader.n},"
        for step in self.state.steps.values():
            if block.id in step.blocks:
                return f"step {step.name}, which began at {step.n},"
        if block.transfers:
            transfer = block.transfers[0]
            return f"transfer {transfer.id} ({transfer.dir}), which began at {transfer.n},"
        return None

    def on_ref(self, event: Ref) -> None:
        """Blocks with content enter a further table: every column must be looked at before it is read."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        table = self.state.table(sequence, event.g)
        column = len(table.blocks) if event.at is None else event.at
        for block_id in event.b:
            if block_id == table.geometry.null_block or block_id == -1:
                self._place(event, table, column, None)
            else:
                block = self.state.checked_block(event, block_id, sequence.name)
                if block is not None:
                    self._enter(event, table, column, block, "taken by")
                    table.dirty.add(column)
            column += 1
        self._compare_counts(event, sequence)

    def _enter(self, event: TableChange, table: Table, column: int, block: Block, what: str) -> None:
        block.hold(table)
        block.life.append((event.n, f"{what} {table.owner.name}"))
        self._place(event, table, column, block)
        if column * table.geometry.span < table.valid:
            table.dirty.add(column)

    def _place(self, event: TableChange, table: Table, column: int, block: Block | None) -> None:
        """Put a block into a column; columns skipped before it hold null."""
        blocks = table.blocks
        size = len(blocks)
        if column < 0 or column > size + MAX_SKIPPED:
            self.state.fail(
                "KVC602",
                event,
                f"column {column} of a table with {size} columns",
                request=table.owner.name,
                block=block,
            )
            if block is not None:
                block.release(table)
            return
        if column < size:
            old = blocks[column]
            if old is not None:
                self.state.fail(
                    "KVC605",
                    event,
                    f"column {column} of {table.owner.name} is overwritten while it holds block {old.id}, "
                    "which nobody freed",
                    request=table.owner.name,
                    block=old,
                    position=column * table.geometry.span,
                )
                old.release(table)
            blocks[column] = block
        else:
            table.dirty.update(range(size, column))
            blocks.extend([None] * (column - size))
            blocks.append(block)

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
        self._compare_counts(event, sequence)

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

    def _compare_counts(self, event: TableChange, sequence: Sequence) -> None:
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


MAX_SKIPPED = 1 << 16
"""Columns that an event may skip: a window far into a long request."""
