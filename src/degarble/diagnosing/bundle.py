"""The folder that a guard of the server leaves: read with care, since it may come from anybody.

`incident.json` tells which guard spoke and of what; `trace.jsonl` is judged like any other trace. Only what a diagnosis
uses is decoded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import TargetError

MAX_BYTES = 16 << 20
MAX_TRACE_BYTES = 64 << 20
MAX_TOLD = 500
Text = str


class _Trip(msgspec.Struct, frozen=True):
    guard: str
    message: str = ""
    num_outputs: int = 0


class _Request(msgspec.Struct, frozen=True):
    id: str
    num_prompt: int = 0
    num_output: int = 0
    num_cached: int = 0
    num_preemptions: int = 0


class _Facts(msgspec.Struct, frozen=True):
    trip: _Trip
    request: _Request
    time: str = ""
    degarble: str = ""
    model: dict[str, Any] = {}
    engine: dict[str, Any] = {}
    earlier_trips: list[Any] = []
    trace_left_out: str | None = None


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """One incident."""

    folder: str
    guard: str
    message: str
    time: str
    version: str
    request: str
    num_prompt: int
    num_output: int
    num_cached: int
    num_preemptions: int
    dtype: str
    trace: str | None
    """Path of the trace; None where there is none."""
    no_trace: str = ""
    """Why."""


def read_bundle(folder: str | Path) -> Bundle:
    """Raises TargetError with file, expected and found for what is no incident."""
    path = Path(folder) / "incident.json"
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:
            raise TargetError(f"{path}: expected a file of at most {MAX_BYTES} bytes, found {size}")
        facts = msgspec.json.decode(path.read_bytes(), type=_Facts)
    except OSError as error:
        raise TargetError(f"{path}: no incident can be read there: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise TargetError(f"{path}: expected incident.json of schema 1: {error}") from None
    trace, why = _trace_in(Path(folder), facts.trace_left_out)
    return Bundle(
        folder=str(folder),
        guard=facts.trip.guard[:MAX_TOLD],
        message=facts.trip.message[:MAX_TOLD],
        time=facts.time[:MAX_TOLD],
        version=facts.degarble[:MAX_TOLD],
        request=facts.request.id[:MAX_TOLD],
        num_prompt=facts.request.num_prompt,
        num_output=facts.request.num_output,
        num_cached=facts.request.num_cached,
        num_preemptions=facts.request.num_preemptions,
        dtype=str(facts.model.get("dtype", ""))[:MAX_TOLD],
        trace=trace,
        no_trace=why,
    )


def _trace_in(folder: Path, left_out: str | None) -> tuple[str | None, str]:
    path = folder / "trace.jsonl"
    if left_out is not None:
        return None, f"the incident has no trace: {left_out[:MAX_TOLD]}"
    try:
        size = path.stat().st_size
    except OSError:
        return None, "the incident has no trace.jsonl"
    if not path.is_file() or size > MAX_TRACE_BYTES:
        return None, f"trace.jsonl has {size} bytes, more than {MAX_TRACE_BYTES}"
    return str(path), ""
