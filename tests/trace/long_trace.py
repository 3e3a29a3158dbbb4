"""A long legal trace, made of one simulated run again and again: what bounds of time, memory and pictures are tested on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import msgspec

from degarble.trace_faults.interface import TracePatient
from tests.trace.simulator import Options, Simulator
from tests.trace.traces import Fields


def closed_run(num_blocks: int = 512, num_events: int = 900) -> list[Fields]:
    """A run whose requests all end."""
    events = Simulator(1, Options(num_blocks=num_blocks, has_prefix_cache=False)).run(num_events)
    while events[-1]["ev"] != "step" or events[-1]["ph"] != "E":
        events.pop()
    patient = TracePatient(events=[*events, events[-1]], rng=random.Random(0))
    *_, (_, _, state) = patient.states()
    for name, sequence in state.sequences.items():
        held = [block.id for table in sequence.tables.values() for block in table.blocks if block is not None]
        if held:
            events.append({"ev": "free", "req": name, "b": held[::-1], "rc": [0] * len(held)})
        events.append({"ev": "req", "req": name, "op": "finish"})
    return events


def long_events(num_events: int, num_blocks: int = 512) -> Iterator[Fields]:
    """Copies of one run, with requests, steps and counters of their own."""
    meta, *events = closed_run(num_blocks)
    yield meta | {"n": 0}
    n = 1
    for copy in range(1, num_events // len(events) + 2):
        for event in events:
            changed = event | {"n": n}
            if "req" in event:
                changed["req"] = f"{event['req']}.{copy}"
            if "step" in event:
                changed["step"] = event["step"] + copy * 100_000
            yield changed
            n += 1
            if n >= num_events:
                return


def write_long(path: Path, num_events: int, num_blocks: int = 512) -> Path:
    """A file of them."""
    encode = msgspec.json.encode
    with path.open("wb") as stream:
        for event in long_events(num_events, num_blocks):
            stream.write(encode(event) + b"\n")
    return path
