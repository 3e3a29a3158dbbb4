"""Faults of transfers, digests, graphs and scales."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, TracePatient, trace_fault


def _full_block(event: Fields, state: State) -> int | None:
    """A settled full block that a request holds."""
    if event["ev"] != "fwd" or state.geometry(0).cp > 1:
        return None
    size = state.geometry(0).block_size
    for block in state.pool(0).blocks.values():
        is_settled = block.step is None or not block.step.is_open
        if block.holders and len(block.rows) == size and is_settled and not block.transfers:
            return block.id
    return None


@trace_fault("KVC618")
def bytes_changed_on_the_way(patient: TracePatient) -> Location:
    """A store whose digest at the destination is another one."""
    index, block = patient.pick_state(_full_block)
    transfer = {"ev": "xfer", "id": "planted", "dir": "store", "b": [block], "key": "planted"}
    patient.insert(
        index,
        transfer | {"ph": "B"},
        transfer | {"ph": "E", "crc_src": "00c0ffee", "crc_dst": "00c0ffef"},
    )
    patient.cut(index + 1)
    return Location(line=index + 1, block=block)


@trace_fault("KVC618")
def part_left_out(patient: TracePatient) -> Location:
    """The values are not sent."""
    patient.pick(patient.group.get("parts", ())[1:])
    index, block = patient.pick_state(_full_block)
    patient.insert(
        index, {"ev": "xfer", "id": "planted", "dir": "send", "b": [block], "key": "planted", "ph": "B", "parts": ["k"]}
    )
    patient.cut(index)
    return Location(line=index, block=block)


@trace_fault("KVC618")
def sent_before_computed(patient: TracePatient) -> Location:
    """A block is sent while the step that writes it is open."""

    def suitable(event: Fields, state: State) -> int | None:
        step = state.step
        if step is None or event["ev"] != "fwd":
            return None
        written = [b.id for b in state.pool(0).blocks.values() if b.step is step and b.holders and not b.transfers]
        return written[0] if written else None

    index, block = patient.pick_state(suitable)
    patient.insert(index, {"ev": "xfer", "id": "planted", "dir": "send", "b": [block], "key": "planted", "ph": "B"})
    patient.cut(index)
    return Location(line=index, block=block)


@trace_fault("KVC618")
def slot_changed_between_write_and_read(patient: TracePatient) -> Location:
    """The digest of a slot is another one at its read."""
    index, block = patient.pick_state(_full_block)
    slot = block * patient.group["block_size"]
    crc = {"ev": "crc", "slot": slot, "layer": 0, "part": "k"}
    patient.insert(index, crc | {"crc": "aa", "at": "write"}, crc | {"crc": "ab", "at": "read"})
    patient.cut(index + 1)
    return Location(line=index + 1, slot=slot, block=block)


@trace_fault("KVC617")
def loaded_over_a_reader(patient: TracePatient) -> Location:
    """A load overwrites a block that the running step reads."""

    def suitable(event: Fields, state: State) -> int | None:
        if event["ev"] != "fwd" or state.step is None:
            return None
        blocks = state.pool(0).blocks
        used = [b for b in state.step.blocks if b in blocks and blocks[b].holders and not blocks[b].entry]
        return used[0] if used else None

    index, block = patient.pick_state(suitable)
    patient.insert(index, {"ev": "xfer", "id": "planted", "dir": "load", "b": [block], "key": "planted", "ph": "B"})
    patient.cut(index)
    return Location(line=index, block=block)


@trace_fault("KVC610")
def pointer_moved(patient: TracePatient) -> Location:
    """A graph is replayed after one of its buffers moved."""
    index = patient.pick_event(
        i for i in patient.of("graph") if patient.events[i]["op"] == "replay" and patient.events[i].get("ptr")
    )
    event = patient.events[index]
    name = patient.pick(event["ptr"])
    event["ptr"][name] += 4096
    return Location(line=index)


@trace_fault("KVC610")
def constant_baked_in(patient: TracePatient) -> Location:
    """A graph is replayed though a constant of its capture has changed."""
    index = patient.pick_event(
        i
        for i in patient.of("graph")
        if patient.events[i]["op"] == "replay" and "max_blocks" in patient.events[i].get("const", {})
    )
    patient.events[index]["const"]["max_blocks"] *= 2
    return Location(line=index)


@trace_fault("WGT224")
def scale_of_zero(patient: TracePatient) -> Location:
    """A layer's value scale is zero."""
    scale = {"ev": "scale", "layer": 1, "part": "v", "value": 0.0, "src": "default", "used_on": ["write", "read"]}
    patient.insert(1, scale)
    return Location(line=1, layer=1)


@trace_fault("WGT224")
def scale_differs_on_read(patient: TracePatient) -> Location:
    """Keys are written with one scale and read with another."""
    scale = {"ev": "scale", "layer": 0, "part": "k", "src": "checkpoint"}
    patient.insert(1, scale | {"value": 0.5, "used_on": ["write"]}, scale | {"value": 0.25, "used_on": ["read"]})
    return Location(line=2, layer=0)
