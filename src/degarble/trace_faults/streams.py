"""Faults of the event stream itself."""

from __future__ import annotations

from degarble.finding import Location
from degarble.trace_faults.interface import TracePatient, trace_fault


@trace_fault("KVC623", renumbers=False)
def event_lost(patient: TracePatient) -> Location:
    """One event is missing."""
    index = patient.pick_event(range(2, len(patient.events) - 1))
    del patient.events[index]
    patient.cut(index)
    return Location(line=index + 1)


@trace_fault("KVC623", renumbers=False)
def events_exchanged(patient: TracePatient) -> Location:
    """Two neighbouring events changed places."""
    index = patient.pick_event(range(1, len(patient.events) - 2))
    patient.events[index], patient.events[index + 1] = patient.events[index + 1], patient.events[index]
    return Location(line=index + 1)


@trace_fault("KVC623")
def wrong_type(patient: TracePatient) -> Location:
    """A list of blocks is a text."""
    index = patient.pick_event(patient.of("alloc", "free", "ref"))
    patient.events[index]["b"] = "1, 2"
    patient.cut(index)
    return Location(line=index)


@trace_fault("KVC623")
def request_nobody_knows(patient: TracePatient) -> Location:
    """A forward of a request that never began."""
    index = patient.pick_event(patient.of("fwd"))
    patient.events[index]["req"] = "nobody"
    patient.cut(index)
    return Location(line=index, request="nobody")


@trace_fault("KVC623")
def evicted_without_store(patient: TracePatient) -> Location:
    """A hash leaves the prefix map that never entered it."""
    index = patient.pick_event(range(2, len(patient.events)))
    patient.insert(index, {"ev": "evict", "h": ["never"], "b": [1]})
    patient.cut(index)
    return Location(line=index, block=1)
