"""Planting a fault in a trace on disk: a new file with the fault, and beside it a record of what was done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import MalformedFile, TargetError, UsageError
from degarble.finding import Location
from degarble.trace.reader import read_items
from degarble.trace.replay import replay_items
from degarble.trace_faults.interface import Fields, NotApplicable, TraceFault, trace_faults
from degarble.version import __version__
from degarble.whole_file import write_whole

MAX_BYTES = 256 << 20
"""A fault is planted in memory, where a trace takes about ten times its size."""
RECORD = ".fault.json"
"""What is added to the name of the new trace."""


def is_trace(target: str) -> bool:
    """Whether a target is a trace by its name."""
    return target.endswith((".jsonl", ".ndjson"))


def find_trace_fault(name: str) -> TraceFault:
    """A fault by its name, or the first one of a rule. Raises UsageError if there is none."""
    wanted = name.strip()
    known = trace_faults()
    found = [fault for fault in known if fault.name == wanted.lower()]
    found += [fault for fault in known if fault.rule == wanted.upper()]
    if not found:
        raise UsageError(f"no trace fault is called {name!r}: `degarble inject --list` shows them")
    return found[0]


def inject_trace(fault: str, trace: str, out: str, *, seed: int = 0, moment: int | None = None) -> Location:
    """Write a copy of a healthy trace with one planted fault to the new file `out`; returns where it shows.

    `moment`: the fault comes at the first event from this counter on that fits, instead of at a random one. Raises
    UsageError where the fault cannot be planted, the trace is not healthy, or `out` is there already.
    """
    chosen = find_trace_fault(fault)
    for path in (out, out + RECORD):
        if os.path.lexists(path):
            raise UsageError(f"{path} exists: name a new file")
    events = _healthy_events(trace)
    try:
        planted, place = chosen.plant(events, seed, moment)
    except (NotApplicable, KeyError, IndexError, TypeError, ValueError) as reason:
        why = str(reason) if isinstance(reason, NotApplicable) else f"the trace lacks {reason}"
        raise UsageError(f"{chosen.name} cannot be planted in {trace}: {why}") from None
    if moment is not None and (place.line or 0) < moment:
        raise UsageError(f"{chosen.name} has no moment: it shows at event {place.line}, before {moment}")
    record = {
        "rule": chosen.rule,
        "fault": chosen.name,
        "summary": chosen.summary,
        "seed": seed,
        "moment": moment,
        "location": place.as_dict(),
        "trace": Path(trace).name,
        "events": len(planted),
        "degarble": __version__,
    }
    _write_new(out, b"".join(msgspec.json.encode(event) + b"\n" for event in planted))
    _write_new(out + RECORD, msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n")
    return place


def _healthy_events(trace: str) -> list[Fields]:
    """All events as plain objects. Raises TargetError or MalformedFile for what is no trace, UsageError for a broken one."""
    try:
        size = os.path.getsize(trace)
    except OSError as error:
        raise TargetError(f"{trace}: {error.strerror or error}") from None
    if size > MAX_BYTES:
        raise UsageError(f"{trace} has {size} bytes; faults are planted in traces of up to {MAX_BYTES}")
    verdict = replay_items(read_items(trace))
    if not verdict.num_events:
        raise TargetError(f"{trace}: no KV-cache trace: none of its {verdict.num_lines} lines is an event")
    if verdict.first is not None:
        first = verdict.first
        raise UsageError(f"{trace} is not healthy: {first.rule} at event {first.line} ({first.message[:160]})")
    if verdict.unknown:
        name, line = next(iter(verdict.unknown.items()))
        raise UsageError(f"{trace}: event {line} is of the unknown kind {name!r}, which cannot be moved along")
    events: list[Fields] = []
    with open(trace, "rb") as stream:
        for number, text in enumerate(stream):
            if text.strip():
                events.append(_fields(text, trace, number))
    return events


def _fields(line: bytes, trace: str, number: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise MalformedFile(trace, f"line {number}", "an event", str(error)[:120]) from None
    return value


def _write_new(path: str, data: bytes) -> None:
    """A file that appears complete or not at all, and replaces none. Raises UsageError where it cannot be written."""
    try:
        write_whole(Path(path), data, replaces=False)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None
