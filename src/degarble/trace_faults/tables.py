"""Faults of tables, counts and the order of reuse."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, NotApplicable, TracePatient, trace_fault


@trace_fault("KVC604")
def written_while_shared(patient: TracePatient) -> Location:
    """A second request takes the block that a first one is about to write."""

    def suitable(event: Fields, state: State) -> int | None:
        sequence = state.sequences.get(event.get("req", ""))
        if event["ev"] != "fwd" or sequence is None or sequence.table is None or not event["slots"]:
            return None
        table = sequence.table
        column = event["pos"][0] // table.geometry.span
        block = table.blocks[column] if column < len(table.blocks) else None
        return block.id if block is not None and max(event["slots"]) >= 0 else None

    index, block = patient.pick_state(suitable)
    name = str(patient.events[index]["req"])
    patient.insert(
        index,
        {"ev": "req", "req": "other", "op": "new", "ids": [1, 2, 3], "ns": {}},
        {"ev": "ref", "req": "other", "b": [block], "at": 0},
    )
    patient.cut(index + 2)
    return Location(line=index + 2, request=name, block=block)


@trace_fault("KVC604")
def copy_forgets_a_row(patient: TracePatient) -> Location:
    """A copy-on-write brings one row too few."""
    index = patient.pick_event(i for i in patient.of("copy") if patient.events[i]["rows"][1] > 1)
    event = patient.events[index]
    event["rows"] = [0, event["rows"][1] - 1]
    patient.cut(index)
    return Location(line=index, block=event["dst"])


@trace_fault("KVC605")
def freed_twice(patient: TracePatient) -> Location:
    """A block is freed by a request that freed it just before."""
    index = patient.pick_event(patient.of("free"))
    event = patient.events[index]
    again = {"ev": "free", "req": event["req"], "b": event["b"][-1:]}
    patient.insert(index + 1, again)
    patient.cut(index + 1)
    return Location(line=index + 1, request=str(event["req"]), block=event["b"][-1])


@trace_fault("KVC605")
def count_off_by_one(patient: TracePatient) -> Location:
    """The engine's count is one too high."""
    index = patient.pick_event(i for i in patient.of("alloc", "ref", "free") if patient.events[i].get("rc"))
    event = patient.events[index]
    event["rc"][0] += 1
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), block=event["b"][0])


@trace_fault("KVC605")
def held_after_the_end(patient: TracePatient) -> Location:
    """A request finishes and frees nothing."""
    ends = [i for i in patient.of("req") if patient.events[i]["op"] in ("finish", "abort", "preempt")]
    index = patient.pick_event(
        i for i in ends if patient.events[i - 1]["ev"] == "free" and "at" not in patient.events[i - 1]
    )
    name = patient.events[index]["req"]
    if patient.events[index - 1]["req"] != name:
        raise NotApplicable("freed elsewhere")
    del patient.events[index - 1]
    patient.cut(index - 1)
    return Location(line=index - 1, request=str(name))


@trace_fault("KVC605")
def handed_out_while_held(patient: TracePatient) -> Location:
    """A block that a live request holds is handed out again."""

    def suitable(event: Fields, state: State) -> int | None:
        if event["ev"] != "alloc":
            return None
        held = [b.id for s in state.sequences.values() for t in s.tables.values() for b in t.blocks if b is not None]
        return held[0] if held else None

    index, block = patient.pick_state(suitable)
    event = patient.events[index]
    event["b"][0] = block
    event.pop("rc", None)
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), block=block)


@trace_fault("KVC617")
def handed_out_inside_a_step(patient: TracePatient) -> Location:
    """A block that the running step reads is handed out to a new request."""

    def suitable(event: Fields, state: State) -> int | None:
        if event["ev"] != "step" or event["ph"] != "B":
            return None
        taken = {b for b, block in state.pool(0).blocks.items() if block.holders or block.entry or block.transfers}
        taken |= {b for step in state.steps.values() for b in step.blocks}
        total = state.geometry(0).num_blocks or 2
        free = [b for b in range(1, min(total, 1 << 16)) if b not in taken and b != state.geometry(0).null_block]
        return free[-1] if free else None

    index, block = patient.pick_state(suitable)
    patient.events[index].setdefault("blocks", []).append(block)
    patient.insert(
        index + 1,
        {"ev": "req", "req": "intruder", "op": "new", "ids": [5, 6, 7], "ns": {}},
        {"ev": "alloc", "req": "intruder", "b": [block]},
    )
    patient.cut(index + 2)
    return Location(line=index + 2, request="intruder", block=block)


@trace_fault("KVC617")
def freed_and_taken_inside_a_step(patient: TracePatient) -> Location:
    """A request is aborted inside its own step, and its block goes to another before the step ends."""

    def suitable(event: Fields, state: State) -> tuple[str, list[int], int] | None:
        if event["ev"] != "fwd" or state.step is None:
            return None
        sequence = state.sequences.get(event["req"])
        if sequence is None or sequence.table is None or len(sequence.tables) > 1:
            return None
        blocks = sequence.table.blocks
        held = [b.id for b in blocks if b is not None]
        last = blocks[-1] if blocks else None
        alone = last is not None and len(last.holders) == 1 and last.entry is None and not last.transfers
        return (event["req"], held[::-1], last.id) if alone and last is not None else None

    index, (name, held, block) = patient.pick_state(suitable)
    patient.insert(
        index + 1,
        {"ev": "free", "req": name, "b": held},
        {"ev": "req", "req": name, "op": "abort"},
        {"ev": "req", "req": "intruder", "op": "new", "ids": [5, 6, 7], "ns": {}},
        {"ev": "alloc", "req": "intruder", "b": [block]},
    )
    patient.cut(index + 4)
    return Location(line=index + 4, request="intruder", block=block)
