"""Faults of slot mappings and device rows."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, NotApplicable, TracePatient, trace_fault


def _plain(patient: TracePatient) -> None:
    if patient.meta.get("cp", 1) > 1:
        raise NotApplicable("context parallel")


def _fwd(patient: TracePatient) -> int:
    return patient.pick_event(i for i in patient.of("fwd") if patient.events[i]["slots"])


@trace_fault("KVC602")
def slot_off_by_one(patient: TracePatient) -> Location:
    """The last slot of a forward is the one before."""
    _plain(patient)
    index = patient.pick_event(
        i for i in patient.of("fwd") if patient.events[i]["slots"] and patient.events[i]["slots"][-1] > 0
    )
    event = patient.events[index]
    event["slots"][-1] -= 1
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), position=event["pos"][1] - 1)


@trace_fault("KVC602")
def slot_missing(patient: TracePatient) -> Location:
    """One slot too few."""
    index = _fwd(patient)
    patient.events[index]["slots"].pop()
    patient.cut(index)
    return Location(line=index, request=str(patient.events[index]["req"]))


@trace_fault("KVC602")
def device_row_stale(patient: TracePatient) -> Location:
    """The device's row holds another block in the column that is written."""
    _plain(patient)

    def suitable(event: Fields, state: State) -> tuple[list[int], int] | None:
        sequence = state.sequences.get(event.get("req", ""))
        if event["ev"] != "fwd" or sequence is None or event.get("g", 0) or sequence.table is None:
            return None
        null = state.geometry(0).null_block
        hole = -1 if null is None else null
        row = [hole if block is None else block.id for block in sequence.table.blocks]
        return row, (event["pos"][1] - 1) // sequence.table.geometry.block_size

    index, (row, column) = patient.pick_state(suitable)
    others = [b for b in range(1, patient.group.get("num_blocks") or patient.meta["num_blocks"]) if b != row[column]]
    row[column] = patient.pick(others)
    patient.events[index]["tab"] = row
    patient.cut(index)
    return Location(line=index, request=str(patient.events[index]["req"]))


@trace_fault("KVC603")
def padding_as_a_slot(patient: TracePatient) -> Location:
    """A real token is written to slot −1."""
    _plain(patient)
    index = _fwd(patient)
    patient.events[index]["slots"][-1] = -1
    patient.cut(index)
    return Location(line=index, request=str(patient.events[index]["req"]), slot=-1)


@trace_fault("KVC603")
def block_past_the_pool(patient: TracePatient) -> Location:
    """A block id one past the last is handed out."""
    index = patient.pick_event(patient.of("alloc"))
    past = patient.group.get("num_blocks") or patient.meta["num_blocks"]
    patient.events[index]["b"][-1] = past
    patient.cut(index)
    return Location(line=index, request=str(patient.events[index]["req"]), block=past)


@trace_fault("KVC603")
def padding_row_writes_a_live_slot(patient: TracePatient) -> Location:
    """A padding row of a graph wraps to the last slot."""
    index = patient.pick_event(i for i in patient.of("graph") if patient.events[i].get("pad_slots"))
    slot = patient.group["num_blocks"] * patient.group["block_size"] - 1
    patient.events[index]["pad_slots"][-1] = slot
    return Location(line=index, slot=slot)


@trace_fault("KVC622")
def token_of_another_rank(patient: TracePatient) -> Location:
    """A rank writes a position that it does not own."""
    if patient.meta.get("cp", 1) < 2:
        raise NotApplicable("one rank")
    index = patient.pick_event(i for i in patient.of("fwd") if -1 in patient.events[i]["slots"])
    event = patient.events[index]
    own = next((slot for slot in event["slots"] if slot >= 0), 17)
    place = event["slots"].index(-1)
    event["slots"][place] = own
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), position=event["pos"][0] + place)


@trace_fault("KVC622")
def own_token_dropped(patient: TracePatient) -> Location:
    """A rank drops a position that it owns."""
    if patient.meta.get("cp", 1) < 2:
        raise NotApplicable("one rank")
    index = patient.pick_event(i for i in patient.of("fwd") if max(patient.events[i]["slots"], default=-1) >= 0)
    event = patient.events[index]
    place = next(i for i, slot in enumerate(event["slots"]) if slot >= 0)
    event["slots"][place] = -1
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), position=event["pos"][0] + place)


@trace_fault("KVC624")
def slot_with_the_kernel_block_size(patient: TracePatient) -> Location:
    """A slot computed with kernel pages of half a block."""
    _plain(patient)
    size = patient.group["block_size"]
    if size % 2:
        raise NotApplicable("an odd block size")
    patient.group["kernel_block_size"] = size // 2
    index = patient.pick_event(
        i for i in patient.of("fwd") if len(patient.events[i]["slots"]) == 1 and patient.events[i]["slots"][0] >= size
    )
    event = patient.events[index]
    event["slots"][0] = event["slots"][0] // size * (size // 2) + event["pos"][0] % (size // 2)
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), position=event["pos"][0])
