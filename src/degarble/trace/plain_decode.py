"""The loop over events, with the short way of what nine of ten events are: a plain decode, and its commit.

A plain decode computes one token right after the last one, into the next row of a block that only this request holds,
and no column has changed since the last read: nothing can be broken that the comparisons here would not notice, and
everything else goes to the judges. Both are written out in the loop, since a call costs as much as half of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from degarble.trace.event import Commit, Event, Fwd
from degarble.trace.pool import HUGE
from degarble.trace.state import State

Handlers = Mapping[type, Callable[[Any], None]]
OnGap = Callable[[Event, int], None]


def judge_events(events: list[Any], expected: int, state: State, handlers: Handlers, on_gap: OnGap) -> int:
    """Judge each event; returns the counter that the next one must have.

    Longer than a function should be, and nested, because calls and repeated attributes are what a replay's time goes to.
    """
    live = state.sequences.get
    step = state.step
    for event in events:
        kind = type(event)
        if kind is Fwd:
            sequence = live(event.req)
            if sequence is not None and (table := sequence.table) is not None and not table.dirty:
                low, high = event.pos
                size = table.block_size
                column = low // size if low == table.valid and low >= table.plain_from else HUGE
                if column < len(table.blocks) and (block := table.blocks[column]) is not None and block.sole is table:
                    rows, values = block.rows, sequence.values
                    if (
                        event.kv == high == low + 1
                        and column * size + len(rows) == low < len(values)
                        and event.slots == [block.id * size + len(rows)]
                        and event.n == expected
                        and event.rope is None
                        and event.tab is None
                        and not event.draft
                        and not event.g
                    ):
                        rows.append(values[low])
                        block.write = event
                        block.step = table.step = step
                        table.lo = low
                        table.valid = high
                        expected += 1
                        continue
        elif kind is Commit:
            sequence = live(event.req)
            if sequence is not None and (table := sequence.table) is not None and table.plain_from < HUGE:
                values, ids = sequence.values, event.ids
                if (
                    event.at == table.valid == event.len == len(values)
                    and ids is not None
                    and event.n == expected
                    and len(ids) == 1 == len(sequence.tables)
                    and sequence.is_running
                ):
                    values.append(sequence.base + ids[0])
                    expected += 1
                    continue
        if event.n != expected:
            on_gap(event, expected)
            expected = event.n
        expected += 1
        handlers[kind](event)
        step = state.step
    return expected
