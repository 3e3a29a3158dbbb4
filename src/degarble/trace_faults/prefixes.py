"""Faults of the prefix map and of what a request reads."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, NotApplicable, TracePatient, trace_fault


@trace_fault("KVC606")
def block_exchanged_without_a_copy(patient: TracePatient) -> Location:
    """A column gets a fresh block, and nobody copies its rows."""

    def suitable(event: Fields, state: State) -> tuple[int, int] | None:
        if event["ev"] != "fwd" or event["pos"][0] < state.geometry(0).span or state.geometry(0).window is not None:
            return None
        sequence = state.sequences.get(event["req"])
        if sequence is None or sequence.table is None or not sequence.table.blocks or sequence.table.blocks[0] is None:
            return None
        used = {b for b, block in state.pool(0).blocks.items() if block.holders or block.entry or block.transfers}
        used |= {b for step in state.steps.values() for b in step.blocks}
        total = state.geometry(0).num_blocks or 2
        free = [b for b in range(1, min(total, 1 << 16)) if b not in used and b != state.geometry(0).null_block]
        return (sequence.table.blocks[0].id, free[-1]) if free else None

    index, (old, new) = patient.pick_state(suitable)
    name = patient.events[index]["req"]
    patient.events[index].pop("tab", None)
    patient.insert(
        index,
        {"ev": "free", "req": name, "b": [old], "at": 0},
        {"ev": "alloc", "req": name, "b": [new], "at": 0},
    )
    patient.cut(index + 2)
    return Location(line=index + 2, request=str(name), block=new)


@trace_fault("KVC608")
def hit_for_other_tokens(patient: TracePatient) -> Location:
    """One token of the request is not the stored one."""
    index = patient.pick_event(i for i in patient.of("hit") if not patient.events[i].get("parent"))
    event = patient.events[index]
    began = next(
        i
        for i in patient.of("req")
        if patient.events[i]["req"] == event["req"] and patient.events[i]["op"] in ("new", "fork")
    )
    patient.events[began]["ids"][0] += 1
    if any(
        patient.events[i]["ev"] == "store" and set(patient.events[i]["b"]) & set(event["b"]) and i > began
        for i in range(index)
        if patient.events[i]["ev"] == "store"
    ) or any(e["ev"] == "fwd" and e["req"] == event["req"] for e in patient.events[:index]):
        raise NotApplicable("the request stored the blocks itself")
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), block=event["b"][0])


@trace_fault("KVC608")
def hit_of_another_adapter(patient: TracePatient) -> Location:
    """A request of another adapter takes the stored prefix."""
    index = patient.pick_event(patient.of("hit"))
    event = patient.events[index]
    event["ns"] = {"lora": "another"}
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC627")
def published_before_full(patient: TracePatient) -> Location:
    """A block is published while its last row is still to be computed."""

    def suitable(event: Fields, state: State) -> tuple[int, int] | None:
        sequence = state.sequences.get(event.get("req", ""))
        if event["ev"] != "fwd" or sequence is None or sequence.table is None or event["pos"][0] == 0:
            return None
        size = sequence.table.geometry.span
        column, row = divmod(event["pos"][0], size)
        block = sequence.table.blocks[column] if column < len(sequence.table.blocks) else None
        return (block.id, row) if block is not None and row > 0 and block.entry is None else None

    index, (block, _) = patient.pick_state(suitable)
    patient.insert(index, {"ev": "store", "h": ["early"], "b": [block], "parent": None, "ns": {}})
    patient.cut(index)
    return Location(line=index, block=block)


@trace_fault("KVC627")
def eviction_forgotten(patient: TracePatient) -> Location:
    """A published block is handed out while the map still leads to it."""

    def suitable(event: Fields, state: State) -> int | None:
        if event["ev"] != "alloc" or state.geometry(0).null_block in event["b"]:
            return None
        busy = {b for step in state.steps.values() for b in step.blocks}
        cached = [
            b
            for b, block in state.pool(0).blocks.items()
            if block.entry is not None and not block.holders and not block.transfers and b not in busy
        ]
        return cached[0] if cached else None

    index, block = patient.pick_state(suitable)
    event = patient.events[index]
    event["b"][0] = block
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), block=block)


@trace_fault("KVC627")
def hit_after_eviction(patient: TracePatient) -> Location:
    """A hit on a hash that the map has just lost."""
    index = patient.pick_event(patient.of("hit"))
    event = patient.events[index]
    patient.insert(index, {"ev": "evict", "h": event["h"][-1:], "b": event["b"][-1:]})
    patient.cut(index + 1)
    return Location(line=index + 1, request=str(event["req"]), block=event["b"][-1])
