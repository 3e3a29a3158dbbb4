"""One forward of one request: its range, its positions, the slots it writes and the rows it reads.

Slots are judged by `slots.py`, rows by `reads.py`. Checks stop at the first broken one of an event, and the request then
goes on from the event's own end.
"""

from __future__ import annotations

from degarble.trace.event import Fwd
from degarble.trace.pool import UNSETTLED, WILD, Sequence, Table
from degarble.trace.reads import ReadJudge
from degarble.trace.slots import SlotJudge
from degarble.trace.state import State


class ForwardJudge:
    """Judges forwards, the long way; Replay.on_fwd has the short way of a plain decode."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.slots = SlotJudge(state)
        self.reads = ReadJudge(state)

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
            and self.reads.judge(event, table)
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
