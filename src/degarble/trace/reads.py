"""The rows that one forward reads: each holds the request's own token, and none lies in a column that was let go.

Rows are checked incrementally: a table marks a column dirty when its block changed its owner or content, and only dirty
columns are compared with the request's own (token, namespace) pairs. A request's own writes are right by the slot check.
"""

from __future__ import annotations

from degarble.trace.event import Fwd
from degarble.trace.namespace import namespace_of, token_of
from degarble.trace.pool import UNSETTLED, WILD, Block, Table
from degarble.trace.state import State


class ReadJudge:
    """Judges what is read: KVC606, KVC615, KVC616 and KVC617."""

    def __init__(self, state: State) -> None:
        self.state = state

    def judge(self, event: Fwd, table: Table) -> bool:
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
