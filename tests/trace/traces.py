"""Traces as plain objects, and their verdicts, for the tests of the trace."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from degarble.trace.reader import read_items
from degarble.trace.replay import Verdict, replay_items
from tests.trace.simulator import FLAVOURS, trace_of

FOLDER = Path(__file__).parent.parent / "cases" / "traces"
Fields = dict[str, Any]


@cache
def healthy(name: str) -> tuple[Fields, ...]:
    """A healthy trace by file name or by flavour of the simulator."""
    if name in FLAVOURS:
        return tuple(trace_of(name, 1, 260))
    return tuple(json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines())


HEALTHY = (*sorted(path.stem for path in FOLDER.glob("healthy-*.jsonl")), *FLAVOURS)


def write(path: Path, events: Iterable[Fields]) -> Path:
    """A file of events."""
    path.write_bytes(b"".join(msgspec.json.encode(event) + b"\n" for event in events))
    return path


def verdict_of(path: Path, events: Iterable[Fields]) -> Verdict:
    """Write, read and replay."""
    return replay_items(read_items(write(path, events)), file=path.name)
