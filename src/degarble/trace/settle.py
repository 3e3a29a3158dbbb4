"""What becomes of computed tokens: commit, rollback, copy, shift, state.

`ids` start at `at` and the last of them is not computed yet, so `len` = at + len(ids) - 1. A rollback is the commit of a
round whose later drafts were rejected. A commit without ids sets the length after a load.
"""

from __future__ import annotations

from degarble.trace.event import Commit, Copy, Shift
from degarble.trace.event import State as StateEvent
from degarble.trace.pool import UNSETTLED, Block, Sequence, Table
from degarble.trace.state import State


class SettleJudge:
    """Settles lengths and tokens, copies rows, and follows shifts and recurrent states."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._state_owner: dict[tuple[int, int], Sequence] = {}

    def on_commit(self, event: Commit, *, is_rollback: bool = False) -> None:
        """Accepted tokens join the request; its length is what is left."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        if event.ids is None:
            self._set_length(event, sequence)
            return
        known = len(sequence.values)
        at = known if event.at is None else event.at
        length = at + len(event.ids) - 1 if event.len is None else event.len
        self._judge(event, sequence, at, length, is_rollback)
        if sequence.is_blind or at > known or at < 0:
            sequence.is_blind = True
            sequence.mark_special()
        base = sequence.base
        sequence.values[at:] = [base + token for token in event.ids] if base else event.ids
        if sequence.is_running:
            for table in sequence.tables.values():
                self._settle(table, at, length, is_rollback)

    def on_rollback(self, event: Commit) -> None:
        """A commit that rejects."""
        self.on_commit(event, is_rollback=True)

    def _judge(self, event: Commit, sequence: Sequence, at: int, length: int, is_rollback: bool) -> None:
        known = len(sequence.values)
        count = len(event.ids or ())
        tables = [table for table in sequence.tables.values() if table.blocks or table.valid]
        computed = max((table.valid for table in tables), default=None)
        is_draft = is_rollback or any(table.drafted for table in tables)
        message = None
        expected = at + count - 1
        if at != known and not sequence.is_blind:
            message = f"tokens are accepted at {at}, {sequence.name} has {known} tokens"
            expected = known + count - 1
        elif length != at + count - 1:
            message = f"{count} tokens accepted at {at} leave {at + count - 1} computed rows, the event says {length}"
        elif computed is not None and length > computed and sequence.is_running and not sequence.is_blind:
            message = f"{length} rows are said to be valid, {computed} were computed"
            expected = computed
        if message is None:
            return
        self.state.fail(
            "KVC616" if is_draft else "KVC626",
            event,
            f"after the {'rollback' if is_rollback else 'commit'} of {sequence.name}: {message}",
            request=sequence.name,
            position=min(at, known),
            measured={"len": length, "at": at},
            bound={"len": expected, "at": known},
        )

    @staticmethod
    def _settle(table: Table, at: int, length: int, is_rollback: bool) -> None:
        """Fill in rows whose token was not told before, and set the length where drafts were open."""
        values, geometry = table.owner.values, table.geometry
        if geometry.block_size:
            for position in range(max(at, 0), min(length, len(values), table.valid)):
                column, row = position // geometry.span, geometry.row_of(position)
                block = table.blocks[column] if column < len(table.blocks) else None
                if block is not None and row is not None and row < len(block.rows) and block.rows[row] is UNSETTLED:
                    block.rows[row] = values[position]
        if is_rollback or table.drafted:
            is_short = length < table.valid
            table.valid = table.lo = length
            table.set_drafted(False, is_short)

    def _set_length(self, event: Commit, sequence: Sequence) -> None:
        """After a load: the rows below `len` are there, and the next read looks at all of them."""
        if event.len is None:
            self.state.fail("KVC623", event, "commit with neither ids nor len", request=sequence.name)
            return
        if not sequence.is_blind and event.len >= len(sequence.values):
            self.state.fail(
                "KVC625",
                event,
                f"{event.len} of the {len(sequence.values)} tokens of {sequence.name} are taken from the cache: "
                "nothing is left to compute",
                request=sequence.name,
                position=event.len,
                measured={"tokens_taken": event.len},
                bound={"max": len(sequence.values) - 1},
            )
        table = self.state.table(sequence, event.g)
        table.valid = table.lo = max(0, event.len)
        table.dirty.update(range(len(table.blocks)))
        table.set_drafted(False, False)

    def on_copy(self, event: Copy) -> None:
        """Rows travel from one block to another; a copy-on-write must bring all that is valid."""
        request = None if event.req is None else str(event.req)
        source = self.state.checked_block(event, event.src, request)
        target = self.state.checked_block(event, event.dst, request)
        if source is None or target is None:
            return
        geometry = self.state.geometry(event.g)
        low, high = event.rows or (0, geometry.block_size)
        problem = self._copy_problem(event, target, low, high)
        if problem is not None:
            rule, message = problem
            self.state.fail(rule, event, message, request=request, block=target, measured={"rows": high - low})
        rows = source.rows[max(low, 0) : max(high, 0)]
        for index, value in enumerate(rows, max(low, 0)):
            target.put(index, value)
        target.write = event
        target.step = self.state.step
        for table in target.holders:
            table.dirty.update(c for c, held in enumerate(table.blocks) if held is target)

    def _copy_problem(self, event: Copy, target: Block, low: int, high: int) -> tuple[str, str] | None:
        geometry = self.state.geometry(event.g)
        what = f"the copy of block {event.src} into {event.dst}"
        if geometry.block_size and not 0 <= low <= high <= geometry.block_size:
            return "KVC603", f"{what} names rows [{low}, {high}) of blocks with {geometry.block_size}"
        if len(target.holders) > 1:
            return "KVC604", f"{what} overwrites a block that {len(target.holders)} tables hold"
        if target.entry is not None:
            return "KVC627", f"{what} overwrites a published block"
        if event.layers is not None and geometry.layers is not None and not geometry.layers <= set(event.layers):
            missing = sorted(geometry.layers - set(event.layers))
            return "KVC604", f"{what} leaves out layers {missing[:8]}"
        if event.parts is not None and geometry.parts is not None and not geometry.parts <= set(event.parts):
            return "KVC604", f"{what} leaves out {sorted(geometry.parts - set(event.parts))}"
        for table in target.holders:
            column = next(c for c, held in enumerate(table.blocks) if held is target)
            needed = min(geometry.block_size, table.valid - column * geometry.span)
            if geometry.cp == 1 and (high < needed or (low > 0 and needed > 0)):
                return "KVC604", f"{what} brings rows [{low}, {high}), {table.owner.name} needs the first {needed}"
        return None

    def on_shift(self, event: Shift) -> None:
        """Positions of cached keys move; the rotation applied must be the sum of the moves."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        delta = event.delta or 0
        sequence.moved += delta
        sequence.pending_shift += delta
        sequence.mark_special()
        if event.applied is None:
            sequence.pending_shift = 0
            return
        if event.applied is False:
            return
        needed = sequence.pending_shift
        applied = needed if event.applied is True else event.applied
        if applied == 0 and needed != 0 and not isinstance(event.applied, bool):
            return
        sequence.pending_shift = 0
        if applied != needed:
            self.state.fail(
                "KVC630",
                event,
                f"keys of {sequence.name} are rotated by {applied}, their positions moved by {needed} since the last "
                "rotation",
                request=sequence.name,
                position=event.range[0] if event.range is not None else None,
                measured={"applied": applied if isinstance(applied, int | float) else str(applied)[:40]},
                bound={"applied": needed},
            )

    def on_state(self, event: StateEvent) -> None:
        """The recurrent state belongs to this request and to the position it goes on from."""
        sequence = self.state.find(event, event.req)
        if sequence is None:
            return
        table = self.state.table(sequence, event.g)
        valid_at = event.valid_at or 0
        problem = self._state_problem(event, sequence, table, valid_at)
        if problem is not None:
            self.state.fail(
                "KVC621",
                event,
                problem,
                request=sequence.name,
                position=table.valid,
                measured={"valid_at": valid_at, "index": event.idx},
                bound={"valid_at": table.valid},
            )
        if event.idx is not None:
            self._state_owner[event.g, event.idx] = sequence
        table.state = (event.idx if event.idx is not None else -1, valid_at)

    def _state_problem(self, event: StateEvent, sequence: Sequence, table: Table, valid_at: int) -> str | None:
        name = sequence.name
        if event.idx is not None:
            if event.idx < 0:
                return f"state index {event.idx} of {name} is none"
            owner = self._state_owner.get((event.g, event.idx))
            is_live = owner is not None and owner is not sequence and not owner.is_ended
            held = owner.tables.get(event.g) if is_live and owner is not None else None
            if owner is not None and held is not None and held.state is not None and held.state[0] == event.idx:
                return f"state {event.idx} of {name} belongs to {owner.name}, which is live"
        if valid_at != table.valid:
            return f"the state of {name} is valid at {valid_at}, the request goes on at {table.valid}"
        if event.init and valid_at:
            return f"the state of {name} is zeroed at position {valid_at}: what was before is lost"
        if event.init is False and not valid_at:
            return f"{name} begins from a state that was not zeroed: another request's is still in it"
        return None
