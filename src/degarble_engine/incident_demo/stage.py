"""A server in this process, on a free port, with the fault in its cache and a record of the cache's events."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.incident_demo.scene import plant_in_cache
from degarble_engine.server import process
from degarble_engine.server.app import application
from degarble_engine.server.limits import Limits
from degarble_engine.server.served_model import open_served
from degarble_engine.server.service import Service
from degarble_engine.telemetry.incident_trace import TraceRing, meta

NAME = "incident"
START_SECONDS = 60
OPTIONS = EngineOptions(block_size=16, num_gpu_blocks=512, max_num_seqs=16)


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """What runs."""

    url: str
    engine: LLMEngine
    ring: TraceRing

    def write_trace(self, path: Path) -> None:
        """All events until now, as a trace of schema 1. Nothing may be running."""
        encode = msgspec.json.Encoder().encode
        events = [meta(self.engine, NAME), *self.ring.events()]
        path.write_bytes(b"".join(encode({"n": number, **event}) + b"\n" for number, event in enumerate(events)))


@contextmanager
def stage(checkpoint: str, seed: int) -> Iterator[Stage]:
    """Serve it with the fault in the cache until the block ends. Raises TargetError if it never starts."""
    model = open_served(Evidence(open_target(checkpoint), Settings()), NAME, options=OPTIONS)
    ring = TraceRing(model.engine.manager)
    model.engine.manager.observe(ring)
    plant_in_cache(model.engine, seed)
    service = Service(model, Limits(), [], planted=["the incident"])
    made = process.server(
        application(service, []), service.loop, host="127.0.0.1", port=0, header_seconds=15.0, drain_seconds=1
    )
    thread = threading.Thread(target=made.run, name="degarble-incident", daemon=True)
    thread.start()
    try:
        yield Stage(url=_address(made, thread), engine=model.engine, ring=ring)
    finally:
        made.should_exit = True
        thread.join(START_SECONDS)


def _address(made: process.DrainingServer, thread: threading.Thread) -> str:
    """Where it listens, once it does."""
    until = time.monotonic() + START_SECONDS
    while not made.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise TargetError("the demonstration's server did not start")
        time.sleep(0.02)
    host, port = made.servers[0].sockets[0].getsockname()[:2]
    return f"http://{host}:{port}"
