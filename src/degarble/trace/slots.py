"""The slots of one forward against its block table, and what a write into their blocks may break.

slot(p) = T[p // bs] * bs + p mod bs (see geometry for context parallelism). A wrong slot is told apart: outside the pool
or padding (KVC603), of another rank (KVC622), computed with the kernel's block size (KVC624), else KVC602, with the
phase shift where the slots are those of other positions.
"""

from __future__ import annotations

from degarble.trace.event import Fwd
from degarble.trace.pool import Block, Table
from degarble.trace.state import State


class SlotJudge:
    """Judges `slots` and `tab` of a forward, then the blocks it writes."""

    def __init__(self, state: State) -> None:
        self.state = state

    def judge(self, event: Fwd, table: Table) -> bool:
        """Whether all is right; the first thing that is not has been reported."""
        geometry = table.geometry
        if geometry.block_size == 0 or geometry.kind == "cross" or (geometry.kind == "recurrent" and not event.slots):
            return True
        if geometry.cp > 1 and geometry.rank is None:
            return True
        low, high = event.pos
        if len(event.slots) != high - low:
            self.state.fail(
                "KVC602",
                event,
                f"{len(event.slots)} slots for the {high - low} tokens of {table.owner.name}",
                request=table.owner.name,
                position=low,
                measured={"slots": len(event.slots)},
                bound={"slots": high - low},
            )
            return False
        wrong = self._first_wrong(event, table)
        if wrong is not None:
            self._report(event, table, wrong)
            return False
        return self._device_row(event, table) and self._may_write(event, table)

    def _first_wrong(self, event: Fwd, table: Table) -> int | None:
        """Index of the first slot that is not the table's."""
        geometry = table.geometry
        low, high = event.pos
        if geometry.cp > 1:
            return next((i for i, slot in enumerate(event.slots) if not self._is_right(table, low + i, slot)), None)
        size = geometry.block_size
        position = low
        while position < high:
            column = position // size
            end = min(high, (column + 1) * size)
            block = table.blocks[column] if column < len(table.blocks) else None
            if block is None:
                return position - low
            start = block.id * size + position - column * size
            index, count = position - low, end - position
            if event.slots[index : index + count] != list(range(start, start + count)):
                return next(index + i for i in range(count) if event.slots[index + i] != start + i)
            position = end
        return None

    @staticmethod
    def _expected(table: Table, position: int) -> int | None:
        """The slot of a position; None without a block, or where another rank owns it."""
        geometry = table.geometry
        column = position // geometry.span
        block = table.blocks[column] if 0 <= column < len(table.blocks) else None
        row = geometry.row_of(position)
        return None if block is None or row is None else block.id * geometry.block_size + row

    def _is_right(self, table: Table, position: int, slot: int) -> bool:
        if table.geometry.row_of(position) is None:
            return slot < 0 or slot == table.geometry.pad_slot
        return slot == self._expected(table, position)

    def _report(self, event: Fwd, table: Table, index: int) -> None:
        geometry = table.geometry
        position, slot = event.pos[0] + index, event.slots[index]
        expected = self._expected(table, position)
        rule, why = self._kind(event, table, index, expected)
        block_id = slot // geometry.block_size if slot >= 0 else None
        block = None
        if block_id is not None and geometry.is_block(block_id):
            block = self.state.pool(event.g).block(block_id)
        self.state.fail(
            rule,
            event,
            f"{table.owner.name} writes position {position} to slot {slot}"
            + (f", its table says {expected}" if expected is not None else "")
            + why
            + self._owner(block, table),
            request=table.owner.name,
            block=block if block is not None else block_id,
            slot=slot,
            position=position,
            measured={"slot": slot},
            bound={"slot": expected},
        )

    def _owner(self, block: Block | None, table: Table) -> str:
        names = sorted({held.owner.name for held in block.holders if held is not table}) if block is not None else []
        return f"; that block is held by {', '.join(names[:4])}" if names else ""

    def _kind(self, event: Fwd, table: Table, index: int, expected: int | None) -> tuple[str, str]:
        """Which rule a wrong slot breaks, and what it looks like."""
        geometry = table.geometry
        position, slot = event.pos[0] + index, event.slots[index]
        if geometry.cp > 1 and geometry.row_of(position) is None:
            return "KVC622", ": that position belongs to another rank"
        is_padding = slot < 0 or slot == geometry.pad_slot
        cp = self.state.meta.cp if self.state.meta is not None else 1
        if cp > 1 and is_padding:
            kind = "owns" if geometry.cp > 1 else "keeps a replica of"
            return "KVC622", f": this rank {kind} the position and drops it"
        if slot < 0:
            return "KVC603", ": padding where a real token is written"
        if not geometry.is_block(slot // geometry.block_size):
            return "KVC603", f": outside the pool of {geometry.num_blocks} blocks"
        if cp > 1 and slot in self._other_ownership(table, position):
            return "KVC622", ": the slot of a group that is " + ("replicated" if geometry.cp > 1 else "sharded")
        if slot in self._other_block_size(table, position):
            return "KVC624", f": computed with the kernel's block size {geometry.kernel_block_size}"
        if expected is None:
            return "KVC602", f": its table has {len(table.blocks)} columns and none for it"
        shift = self._shift(event, table, index)
        return "KVC602", f": the slots of positions {shift:+d} tokens away" if shift is not None else ""

    def _other_ownership(self, table: Table, position: int) -> set[int]:
        """Slots that the position would have if the group were replicated instead of sharded, or the other way."""
        size, cp = table.geometry.block_size, self.state.meta.cp if self.state.meta is not None else 1
        span = size if table.geometry.cp > 1 else size * cp
        column = position // span
        block = table.blocks[column] if column < len(table.blocks) else None
        if block is None:
            return set()
        interleave = table.geometry.interleave
        o = position % span
        row = o if span == size else (o // (cp * interleave)) * interleave + o % interleave
        return {block.id * size + row}

    @staticmethod
    def _other_block_size(table: Table, position: int) -> set[int]:
        """Slots that mix the ids of one block size with the other size."""
        size, kernel = table.geometry.block_size, table.geometry.kernel_block_size
        if kernel == size or kernel <= 0:
            return set()
        mixed = set()
        for columns in (size, kernel):
            column = position // columns
            block = table.blocks[column] if column < len(table.blocks) else None
            if block is not None:
                mixed |= {block.id * a + position % b for a in (size, kernel) for b in (size, kernel)}
                mixed |= {block.id * a + position % size // kernel * kernel + position % kernel for a in (size, kernel)}
        return mixed

    def _shift(self, event: Fwd, table: Table, index: int) -> int | None:
        """The constant k with slots[i] = slot(position + k) from the first wrong slot on."""
        low = event.pos[0]
        size = table.geometry.block_size
        for distance in range(1, 2 * size + 1):
            for k in (distance, -distance):
                places = range(index, min(len(event.slots), index + 64))
                if all(event.slots[i] == self._expected(table, low + i + k) for i in places):
                    return k
        return None

    def _device_row(self, event: Fwd, table: Table) -> bool:
        """The block-table row as the device saw it, in logical or kernel blocks, over the columns that are read."""
        tab = event.tab
        if tab is None:
            return True
        geometry = table.geometry
        ratio = max(1, geometry.block_size // max(1, geometry.kernel_block_size))
        first = geometry.first_read(event.pos[0]) // geometry.span
        last = min(len(table.blocks), -(-event.pos[1] // geometry.span))
        wrong = self._first_difference(tab, table, first, last, 1)
        if wrong is None or (ratio > 1 and self._first_difference(tab, table, first, last, ratio) is None):
            return True
        block = table.blocks[wrong]
        found = tab[wrong] if wrong < len(tab) else None
        pool_end = None if geometry.num_blocks is None else geometry.num_blocks * ratio
        is_outside = found is not None and (found < 0 or (pool_end is not None and found >= pool_end))
        self.state.fail(
            "KVC603" if is_outside else "KVC602",
            event,
            f"column {wrong} of the device's row of {table.owner.name} holds {found}, the table "
            f"{None if block is None else block.id}: the device reads a stale or foreign block",
            request=table.owner.name,
            block=block,
            position=wrong * geometry.span,
            measured={"device_block": found},
            bound={"device_block": None if block is None else block.id},
        )
        return False

    @staticmethod
    def _first_difference(tab: list[int], table: Table, first: int, last: int, ratio: int) -> int | None:
        null = table.geometry.null_block
        for column in range(first, last):
            block = table.blocks[column]
            base = column * ratio
            if block is None:
                if len(tab) <= base or tab[base] in (-1, null):
                    continue
                return column
            if tab[base : base + ratio] != [block.id * ratio + i for i in range(ratio)]:
                return column
        return None

    def _may_write(self, event: Fwd, table: Table) -> bool:
        """Nobody else holds the blocks that are written, the map does not lead to them, no transfer reads them."""
        low, high = event.pos
        size = table.geometry.span
        for column in range(low // size, -(-high // size)):
            block = table.blocks[column]
            if block is None:
                continue
            if len(block.holders) > 1 or block.entry is not None or block.transfers:
                begin = max(low, column * size)
                if not self.judge_write(event, table, block, begin):
                    return False
        return True

    def judge_write(self, event: Fwd, table: Table, block: Block, position: int) -> bool:
        """Report a write into a block that is shared, published or in transfer."""
        name = table.owner.name
        others = sorted({held.owner.name for held in block.holders if held is not table})
        if len(block.holders) > 1:
            rule = "KVC604"
            message = (
                f"{name} writes block {block.id}, which {', '.join(others[:4]) or 'it'} also holds: no copy came before"
            )
        elif block.entry is not None:
            rule = "KVC627"
            message = f"{name} writes block {block.id}, which is published: the prefix map leads others to it"
        else:
            rule = "KVC617"
            message = f"{name} writes block {block.id} while transfer {block.transfers[0].id} is open on it"
        row = table.geometry.row_of(position)
        for held in block.holders:
            if held is not table:
                held.dirty.update(c for c, other in enumerate(held.blocks) if other is block)
        self.state.fail(
            rule,
            event,
            message,
            request=name,
            block=block,
            slot=None if row is None else block.id * table.geometry.block_size + row,
            position=position,
            measured={"ref_count": len(block.holders)},
            bound={"ref_count": 1},
        )
        return False
