"""Faults of sliding windows."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, TracePatient, trace_fault


@trace_fault("KVC615")
def column_freed_early(patient: TracePatient) -> Location:
    """The first column inside the window goes as well."""

    def suitable(event: Fields, state: State) -> tuple[int, int] | None:
        sequence = state.sequences.get(event.get("req", ""))
        if event["ev"] != "fwd" or sequence is None or sequence.table is None or event.get("g", 0):
            return None
        table = sequence.table
        if table.geometry.window is None or len(table.blocks) < 2:
            return None
        column = table.geometry.first_read(event["pos"][0]) // table.geometry.span
        if column >= len(table.blocks) - 1 or (column + 1) * table.geometry.span > event["pos"][0]:
            return None  # the column that is written next may be a copy's source: only the next forward could tell
        block = table.blocks[column]
        return (column, block.id) if block is not None and len(block.holders) == 1 else None

    index, (column, block) = patient.pick_state(suitable)
    name = patient.events[index]["req"]
    patient.insert(index, {"ev": "free", "req": name, "b": [block], "at": column})
    patient.cut(index + 1)
    return Location(line=index, request=str(name), block=block)
