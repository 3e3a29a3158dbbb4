"""One forward of one request: its range, its positions, the slots it writes and the rows it reads.

The rows are checked incrementally: a table marks a column dirty when its block changed its owner or content, and only
dirty columns are compared with the request's own (token, namespace) pairs. A request's own writes are right by the slot
check. Checks stop at the first broken one of an event, and the request then goes on from the event's own end.
"""

from __future__ import annotations

from degarble.trace.event import Fwd
from degarble.trace.namespace import namespace_of, token_of
from degarble.trace.pool import UNSETTLED, WILD, Block, Sequence, Table
from degarble.trace.slots import SlotJudge
from degarble.trace.state import State


class ForwardJudge:
    """Judges forwards, the long way; Replay.on_fwd has the short way of a plain decode."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.slots = SlotJudge(state)

    def on_fwd(self, event: Fwd) -> None:
        """Judge one forward, then let the request stand where the event says."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        table = self.state.table(sequence, event.g)
        is_sound = (
            self._range(event, sequence, table)
            and self._length(event, table)
            and self._rope(event, sequence)
            and self._state(event, table)
            and self.slots.judge(event, table)
            and self._reads(event, table)
        )
        low, high = event.pos
        if is_sound:
            self._write(event, sequence, table)
        else:
            self._resume(event, sequence, table)
        table.lo = low
        table.valid = max(high, 0)
        table.step = self.state.step
        table.cut_at = None
        if table.drafted or table.is_rolled_back or event.draft:
            table.set_drafted(bool(event.draft), False)

    def _resume(self, event: Fwd, sequence: Sequence, table: Table) -> None:
        """After a violation: as if the event had written where its table says, so that nothing is told twice."""
        table.dirty.clear()
        low, high = event.pos
        size = table.geometry.span
        if not size or low < 0 or high <= low or high - low > len(event.slots):
            return
        columns = table.blocks[low // size : -(-high // size)]
        if len(columns) == -(-high // size) - low // size and None not in columns:
            self._write(event, sequence, table)

    def _range(self, event: Fwd, sequence: Sequence, table: Table) -> bool:
        """[lo, hi) is not empty, begins where the last one ended, and stays inside the tokens there are."""
        low, high = event.pos
        fail = self.state.fail
        name = sequence.name
        known = len(sequence.values)
        if low < 0 or high <= low:
            fail(
                "KVC625",
                event,
                f"{name} computes the empty or negative range [{low}, {high})",
                request=name,
                position=low,
                measured={"tokens": high - low},
                bound={"min": 1},
            )
            return False
        is_waiting = table.drafted and not (table.step is not None and table.step.is_open)
        if low != table.valid or is_waiting:
            self._gap(event, sequence, table, is_waiting)
            return False
        if high > known and not event.draft and not sequence.is_blind and not self._is_ahead(event, table, known):
            fail(
                "KVC625",
                event,
                f"{name} computes [{low}, {high}) and has {known} tokens",
                request=name,
                position=known,
                measured={"end": high},
                bound={"tokens": known},
            )
            return False
        return True

    @staticmethod
    def _is_ahead(event: Fwd, table: Table, known: int) -> bool:
        """An engine that schedules the next token before the last one is told (asynchronous scheduling)."""
        low, high = event.pos
        is_running = table.step is None or table.step.is_open
        return high - low == 1 and 0 <= low - known <= 1 and low > 0 and is_running

    def _gap(self, event: Fwd, sequence: Sequence, table: Table, is_waiting: bool) -> None:
        low, high = event.pos
        off = low - table.valid
        if is_waiting:
            rule = "KVC616"
            message = f"{sequence.name} goes on at {low} though its drafts from {table.lo} on were never settled"
        elif table.is_rolled_back:
            rule = "KVC616"
            message = f"{sequence.name} goes on at {low}, {table.valid} tokens are left after the rollback"
        else:
            rule = "KVC626"
            message = f"{sequence.name} computes [{low}, {high}) while {table.valid} tokens are in its cache"
        kind = f": {off} tokens are skipped" if off > 0 else f": {-off} tokens are computed again" if off else ""
        self.state.fail(
            rule,
            event,
            message + kind,
            request=sequence.name,
            position=min(low, table.valid),
            measured={"start": low},
            bound={"start": table.valid},
        )

    def _length(self, event: Fwd, table: Table) -> bool:
        if event.kv == event.pos[1] or table.geometry.kind == "cross":
            return True
        high = event.pos[1]
        more = "reads rows that nobody wrote" if event.kv > high else "does not see its own last rows"
        self.state.fail(
            "KVC626",
            event,
            f"the kernel gets length {event.kv} for {table.owner.name}, whose chunk ends at {high}: it {more}",
            request=table.owner.name,
            position=min(event.kv, high),
            measured={"kv": event.kv},
            bound={"kv": high},
        )
        return False

    def _rope(self, event: Fwd, sequence: Sequence) -> bool:
        """Position ids are the logical positions plus the declared offset (and, after a shift, its moves)."""
        low, high = event.pos
        rope = event.rope
        offset = sequence.rope_offset
        if rope is None:
            if not offset:
                return True
            wrong, shift = 0, -offset
        elif len(rope) != high - low:
            wrong, shift = min(len(rope), high - low), None
        else:
            allowed = {offset, offset + sequence.moved}
            if any(rope == list(range(low + own, high + own)) for own in allowed):
                return True
            wrong = next(i for i, p in enumerate(rope) if p != low + i + offset)
            differences = {p - low - i - offset for i, p in enumerate(rope[wrong:], wrong)}
            shift = differences.pop() if len(differences) == 1 else None
        self._report_phase(event, sequence, low + wrong, shift)
        return False

    def _report_phase(self, event: Fwd, sequence: Sequence, position: int, shift: int | None) -> None:
        how = "by no constant shift" if shift is None else f"by a phase shift of {shift:+d} tokens"
        given = len(event.rope) if event.rope is not None else None
        self.state.fail(
            "KVC607",
            event,
            f"from position {position} on, the position ids of {sequence.name} leave its cache index {how}"
            + (f" (declared offset {sequence.rope_offset})" if sequence.rope_offset else ""),
            request=sequence.name,
            position=position,
            measured={"phase_shift_tokens": shift, "position_ids": given},
            bound={"phase_shift_tokens": 0},
        )

    def _state(self, event: Fwd, table: Table) -> bool:
        if table.geometry.kind != "recurrent" or table.state is None or table.state[1] == event.pos[0]:
            return True
        self.state.fail(
            "KVC621",
            event,
            f"{table.owner.name} goes on at {event.pos[0]} from state {table.state[0]}, valid at {table.state[1]}",
            request=table.owner.name,
            position=event.pos[0],
            measured={"valid_at": table.state[1]},
            bound={"valid_at": event.pos[0]},
        )
        return False

    def _reads(self, event: Fwd, table: Table) -> bool:
        """Every column that may have changed since the last read holds this request's own tokens."""
        geometry = table.geometry
        if not table.dirty or geometry.block_size == 0 or geometry.kind in ("recurrent", "cross"):
            return self._window(event, table)
        first = geometry.first_read(event.pos[0])
        for column in sorted(table.dirty):
            start = max(column * geometry.span, first)
            end = min((column + 1) * geometry.span, event.pos[0])
            if start < end and not self._column(event, table, column, start, end):
                return False
        table.dirty.clear()
        return self._window(event, table)

    def _window(self, event: Fwd, table: Table) -> bool:
        """No column that the window still covers is a hole."""
        first = table.geometry.first_read(event.pos[0])
        if table.null_end <= first:
            return True
        for column in range(
            first // table.geometry.span, min(len(table.blocks), -(-event.pos[0] // table.geometry.span))
        ):
            if table.blocks[column] is None:
                self._report_hole(event, table, max(first, column * table.geometry.span))
                return False
        return True

    def _report_hole(self, event: Fwd, table: Table, position: int) -> None:
        is_window = table.geometry.window is not None
        if table.cut_at is not None:
            self._report_cut(table, position)
            return
        self.state.fail(
            "KVC615" if is_window else "KVC606",
            event,
            f"{table.owner.name} reads position {position}, whose column holds no block any more",
            request=table.owner.name,
            position=position,
            measured={"position_read": position},
            bound={"first_free_to_drop": table.geometry.first_read(event.pos[0])},
        )

    def _report_cut(self, table: Table, position: int) -> None:
        assert table.cut_at is not None
        self.state.fail(
            "KVC616" if table.is_rolled_back else "KVC606",
            table.cut_at,
            f"blocks of {table.owner.name} from position {position} on were freed though {table.valid} tokens stay",
            request=table.owner.name,
            position=position,
            measured={"rows_kept": position},
            bound={"rows_kept": table.valid},
        )

    def _column(self, event: Fwd, table: Table, column: int, start: int, end: int) -> bool:
        """Compare the rows of one column in [start, end) with the request's tokens."""
        block = table.blocks[column] if column < len(table.blocks) else None
        if block is None:
            if table.geometry.kind == "chunked" and table.geometry.window is None:
                return True
            self._report_hole(event, table, start)
            return False
        loading = next((t for t in block.transfers if t.is_writing), None)
        if loading is not None:
            self.state.fail(
                "KVC617",
                event,
                f"{table.owner.name} reads block {block.id} while transfer {loading.id} still writes it",
                request=table.owner.name,
                block=block,
                position=start,
            )
            return False
        values = table.owner.values
        if table.geometry.cp == 1:
            low = start - column * table.geometry.span
            if block.rows[low : low + end - start] == values[start:end]:
                return True
        return self._rows(event, table, block, start, min(end, len(values)))

    def _rows(self, event: Fwd, table: Table, block: Block, start: int, end: int) -> bool:
        """The slow way: row by row, to name the first stale one."""
        for position in range(start, end):
            row = table.geometry.row_of(position)
            if row is None or table.owner.is_blind:
                continue
            found = block.rows[row] if row < len(block.rows) else None
            if found is WILD or found == table.owner.values[position]:
                continue
            if table.cut_at is not None:
                self._report_cut(table, position)
            else:
                self._report_stale(event, table, block, position, row, found)
            return False
        return True

    def _report_stale(
        self, event: Fwd, table: Table, block: Block, position: int, row: int, found: int | object | None
    ) -> None:
        expected = table.owner.values[position]
        if found is None:
            what = "nobody has written it since the block was allocated"
        elif found is UNSETTLED or not isinstance(found, int):
            what = "it holds a token that was never accepted"
        elif namespace_of(found) != namespace_of(expected):
            what = f"it holds token {token_of(found)} of another namespace (adapter, salt or image)"
        else:
            what = f"it holds token {token_of(found)}, not {token_of(expected)}"
        self.state.fail(
            "KVC606",
            event,
            f"{table.owner.name} reads position {position} from block {block.id}, row {row}: {what}",
            request=table.owner.name,
            block=block,
            slot=block.id * table.geometry.block_size + row,
            position=position,
            measured={"token_id": token_of(found) if isinstance(found, int) else None},
            bound={"token_id": token_of(expected)},
        )

    def _write(self, event: Fwd, sequence: Sequence, table: Table) -> None:
        """Put the tokens [lo, hi) into their rows."""
        geometry = table.geometry
        if not event.slots or geometry.block_size == 0 or geometry.kind == "cross":
            return
        low, high = event.pos
        step = self.state.step
        values = sequence.values[low:high]
        values += [WILD if sequence.is_blind else UNSETTLED] * (high - low - len(values))
        size = geometry.span
        for start in range(low - low % size, high, size):
            block = table.blocks[start // size]
            assert block is not None
            begin, end = max(low, start), min(high, start + size)
            block.write, block.step = event, step
            if geometry.cp == 1 and len(block.rows) >= begin - start:
                block.rows[begin - start : end - start] = values[begin - low : end - low]
                continue
            for position in range(begin, end):
                row = geometry.row_of(position)
                if row is not None:
                    block.put(row, values[position - low])
