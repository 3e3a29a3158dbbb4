"""Events per second of the trace replay, and microseconds per event of the writer, on one core.

    python benchmarks/trace_replay.py [--events 1000000] [--batch 64]

Writes a healthy trace of decodes (with prefills, allocations, stores, frees and step events in between) to a temporary
file through the writer, then replays it. The replay runs in a process of its own, as the command does.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from degarble.trace.event import Alloc, AnyEvent, Commit, Evict, Free, Fwd, Group, Meta, Req, Step, Store
from degarble.trace.reader import read_items
from degarble.trace.replay import replay_items
from degarble.trace.writer import TraceWriter

BLOCK_SIZE = 16
PROMPT = 100
DECODES = 156


def meta(num_blocks: int) -> Meta:
    """One full group of a small model."""
    group = Group(layers=[0, 1], owner=[0, 1], axes=["num_blocks", "block_size", "num_kv_heads", "head_dim"])
    group.shape, group.strides, group.itemsize = [num_blocks, BLOCK_SIZE, 4, 64], [4096, 256, 64, 1], 2
    group.index_bits = 64
    return Meta(
        n=0,
        schema=1,
        layers=2,
        num_heads=8,
        num_kv_heads=4,
        head_dim=64,
        block_size=BLOCK_SIZE,
        num_blocks=num_blocks,
        groups=[group],
    )


def rounds(batch: int) -> Iterator[list[AnyEvent]]:
    """Engine steps of a batch of requests that start, decode and end together, for ever."""
    per_request = -(-(PROMPT + DECODES) // BLOCK_SIZE)
    number = step = 0
    while True:
        names = [f"r{number + i}" for i in range(batch)]
        number += batch
        tables = {name: list(range(i * per_request, (i + 1) * per_request)) for i, name in enumerate(names)}
        ids = {name: [(len(name) * 7919 + i) % 50_000 for i in range(PROMPT)] for name in names}
        begin: list[AnyEvent] = []
        for name in names:
            begin += [Req(n=0, req=name, op="new", ids=ids[name]), Alloc(n=0, req=name, b=tables[name][:7], rc=[1] * 7)]
        yield begin
        for at in range(DECODES):
            step += 1
            events: list[AnyEvent] = [
                Step(n=0, step=step, ph="B", blocks=[b for name in names for b in tables[name][: at // 16 + 7]])
            ]
            low, high = (0, PROMPT) if at == 0 else (PROMPT + at - 1, PROMPT + at)
            for name in names:
                table = tables[name]
                if low % BLOCK_SIZE == 0 and low:
                    events.insert(0, Alloc(n=0, req=name, b=[table[low // BLOCK_SIZE]], rc=[1]))
                slots = [table[p // BLOCK_SIZE] * BLOCK_SIZE + p % BLOCK_SIZE for p in range(low, high)]
                events.append(Fwd(n=0, req=name, pos=(low, high), slots=slots, kv=high))
            events.append(Step(n=0, step=step, ph="E"))
            events += [Commit(n=0, req=name, at=high, len=high, ids=[at]) for name in names]
            yield events
        used = -(-(PROMPT + DECODES - 1) // BLOCK_SIZE)
        end: list[AnyEvent] = []
        for name in names:
            end.append(Store(n=0, h=[f"{name}-0"], b=tables[name][:1], ids=ids[name][:BLOCK_SIZE]))
        for name in names:
            end.append(Free(n=0, req=name, b=tables[name][:used][::-1], rc=[0] * used))
            end.append(Req(n=0, req=name, op="finish"))
            end.append(Evict(n=0, h=[f"{name}-0"], b=tables[name][:1]))
        yield end


def replayed(path: Path) -> dict[str, float]:
    """Median of three replays, and of parsing the same lines, in this process, which did nothing else."""
    times, before = [], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        begin = time.process_time()
        verdict = replay_items(read_items(path))
        times.append(time.process_time() - begin)
    assert not verdict.violations, verdict.violations[:3]
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    peers = []
    for _ in range(3):
        begin = time.process_time()
        with path.open("rb") as stream:
            for line in stream:
                json.loads(line)
        peers.append(time.process_time() - begin)
    return {
        "events": verdict.num_events,
        "replay_events_per_s": round(verdict.num_events / statistics.median(times)),
        "json_loads_events_per_s": round(verdict.num_events / statistics.median(peers)),
        "ratio": round(statistics.median(peers) / statistics.median(times), 2),
        "peak_grew_mib": round(grown / 1024),
    }


def main() -> None:
    """Print the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--replay", type=Path, help="replay this trace and do no more")
    options = parser.parse_args()
    gc.set_threshold(200_000)  # as the command line does
    if options.replay:
        print(json.dumps(replayed(options.replay)))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        count, spent = 0, 0.0
        with TraceWriter(path) as writer:
            writer.write([meta(options.batch * 16)])
            for events in rounds(options.batch):
                begin = time.process_time()
                writer.write(events)
                spent += time.process_time() - begin
                count += len(events)
                if count >= options.events:
                    break
        command = [sys.executable, __file__, "--replay", str(path)]
        shown = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        row = {"mb": round(path.stat().st_size / 1e6), "writer_us_per_event": round(spent / count * 1e6, 2)}
        print(json.dumps(json.loads(shown) | row))


if __name__ == "__main__":
    main()
