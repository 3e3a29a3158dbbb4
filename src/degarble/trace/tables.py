"""Requests and what enters their block tables: req, alloc, ref. Judges KVC605, and what touching a block may break.

What leaves a table is judged by `frees.py`.
"""

from __future__ import annotations

from degarble.trace.event import Alloc, Ref, Req, TableChange
from degarble.trace.frees import FreeJudge
from degarble.trace.namespace import base_of
from degarble.trace.pool import Block, Sequence, Table
from degarble.trace.state import State

LIVE = ("new", "resume", "fork", "preempt", "finish", "abort")


class TableJudge:
    """Moves tables and counts, and judges every move."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.frees = FreeJudge(state)

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
        self.frees.compare_counts(event, sequence)

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
        self.frees.compare_counts(event, sequence)

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


MAX_SKIPPED = 1 << 16
"""Columns that an event may skip: a window far into a long request."""
