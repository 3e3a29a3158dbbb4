"""The timeline as Chrome trace events, which Perfetto opens: one track of cache index and one of position id a request.

The counter of the trace stands for time: one event is one microsecond.
"""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.trace.timeline import Timeline


def chrome_trace(timeline: Timeline) -> str:
    """The JSON document."""
    requests = {name: number for number, name in enumerate(dict.fromkeys(f.request for f in timeline.forwards), 1)}
    events: list[dict[str, Any]] = []
    for name, number in requests.items():
        events.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}})
    for forward in timeline.forwards:
        pid = requests[forward.request]
        base = {"ph": "X", "ts": forward.n, "dur": 1, "pid": pid, "cat": "fwd"}
        cache = {"first": forward.low, "end": forward.high, "slots": list(forward.slots)}
        events.append(base | {"tid": 1, "name": f"cache_index {forward.low}..{forward.high - 1}", "args": cache})
        ids = {"first": forward.rope[0], "last": forward.rope[1]}
        events.append(base | {"tid": 2, "name": f"position_id {forward.rope[0]}..{forward.rope[1]}", "args": ids})
        counters = {"cache_index": forward.high - 1, "position_id": forward.rope[1]}
        events.append({"ph": "C", "ts": forward.n, "pid": pid, "name": "position", "args": counters})
    for holding in timeline.holdings:
        end = holding.end if holding.end is not None else timeline.last_n + 1
        block: dict[str, Any] = {"ph": "X", "ts": holding.begin, "dur": end - holding.begin, "pid": 0, "cat": "block"}
        events.append(block | {"tid": holding.block, "name": holding.request, "args": {"block": holding.block}})
    for violation in timeline.verdict.violations:
        mark: dict[str, Any] = {"ph": "i", "s": "g", "ts": violation.line, "pid": 0, "tid": violation.block or 0}
        events.append(mark | {"name": f"{violation.rule}: {violation.message}"})
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns"}).decode() + "\n"
