"""Faults of ranges, lengths, position ids, states and shifts."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace.state import State
from degarble.trace_faults.interface import Fields, NotApplicable, TracePatient, trace_fault


@trace_fault("KVC607")
def position_ids_shifted(patient: TracePatient) -> Location:
    """Position ids run ahead of the cache index."""
    index = patient.pick_event(patient.of("fwd"))
    event = patient.events[index]
    k = patient.pick((-2, -1, 1, 3, 16))
    event["rope"] = [p + k for p in event.get("rope") or range(*event["pos"])]
    patient.cut(index)
    return Location(line=index, request=str(event["req"]), position=event["pos"][0])


@trace_fault("KVC616")
def rollback_keeps_one_row_more(patient: TracePatient) -> Location:
    """A rollback leaves the row of a rejected draft."""
    index = patient.pick_event(patient.of("rollback"))
    event = patient.events[index]
    event["len"] += 1
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC616")
def rollback_forgotten(patient: TracePatient) -> Location:
    """The request goes on behind its rejected drafts."""
    lost = patient.pick_event(patient.of("rollback"))
    name = patient.events[lost]["req"]
    del patient.events[lost]
    later = [i for i in patient.of("fwd") if i >= lost and patient.events[i]["req"] == name]
    if not later:
        raise NotApplicable("the request does not go on")
    between = patient.events[lost : later[0]]
    if any(event["ev"] == "store" or (event.get("req") == name and event["ev"] == "req") for event in between):
        raise NotApplicable("the request is preempted, or its block published, before it goes on")
    patient.cut(later[0])
    return Location(line=later[0], request=str(name))


@trace_fault("KVC621")
def state_of_another_position(patient: TracePatient) -> Location:
    """The recurrent state is one token behind."""
    index = patient.pick_event(i for i in patient.of("fwd") if patient.events[i]["pos"][0] > 1)
    event = patient.events[index]
    state = {"ev": "state", "req": event["req"], "idx": 3, "valid_at": event["pos"][0] - 1, "init": False}
    patient.insert(index, state)
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC621")
def state_not_zeroed(patient: TracePatient) -> Location:
    """A new request begins from a state that somebody left."""
    index = patient.pick_event(i for i in patient.of("fwd") if patient.events[i]["pos"][0] == 0)
    name = patient.events[index]["req"]
    patient.insert(index, {"ev": "state", "req": name, "idx": 3, "valid_at": 0, "init": False})
    patient.cut(index)
    return Location(line=index, request=str(name))


@trace_fault("KVC625")
def hit_takes_everything(patient: TracePatient) -> Location:
    """A hit takes all tokens of the request."""

    def suitable(event: Fields, state: State) -> int | None:
        sequence = state.sequences.get(event.get("req", ""))
        return len(sequence.values) if event["ev"] == "hit" and sequence is not None else None

    index, known = patient.pick_state(suitable)
    event = patient.events[index]
    event["tok"] = known
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC625")
def forward_of_nothing(patient: TracePatient) -> Location:
    """A forward computes an empty range."""
    index = patient.pick_event(patient.of("fwd"))
    event = patient.events[index]
    event.update(pos=[event["pos"][0], event["pos"][0]], slots=[], kv=event["pos"][0])
    event.pop("rope", None)
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC626")
def length_off_by_one(patient: TracePatient) -> Location:
    """The kernel gets a length one too small."""
    index = patient.pick_event(patient.of("fwd"))
    patient.events[index]["kv"] -= 1
    patient.cut(index)
    return Location(line=index, request=str(patient.events[index]["req"]))


@trace_fault("KVC626")
def token_skipped(patient: TracePatient) -> Location:
    """A chunk begins one token late."""
    index = patient.pick_event(
        i
        for i in patient.of("fwd")
        if patient.events[i]["pos"][1] - patient.events[i]["pos"][0] > 1 and not patient.events[i].get("draft")
    )
    event = patient.events[index]
    event["pos"] = [event["pos"][0] + 1, event["pos"][1]]
    event["slots"] = event["slots"][1:]
    if event.get("rope"):
        event["rope"] = event["rope"][1:]
    patient.cut(index)
    return Location(line=index, request=str(event["req"]))


@trace_fault("KVC630")
def second_shift_replaces_the_first(patient: TracePatient) -> Location:
    """Two shifts, and keys are rotated by the second only."""
    index = patient.pick_event(i for i in patient.of("fwd") if patient.events[i]["pos"][0] > 0)
    name = patient.events[index]["req"]
    high = patient.events[index]["pos"][0]
    patient.insert(
        index,
        {"ev": "shift", "req": name, "range": [0, high], "delta": -50, "applied": 0},
        {"ev": "shift", "req": name, "range": [0, high], "delta": -20, "applied": -20},
    )
    patient.cut(index + 1)
    return Location(line=index + 1, request=str(name))
