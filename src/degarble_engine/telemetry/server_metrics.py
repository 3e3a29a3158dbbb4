"""The families of the table, counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from degarble_engine.server.engine_loop import EngineLoop
from degarble_engine.telemetry.exposition import Counter, Histogram, Metric, Read, ReadEach
from degarble_engine.telemetry.guard_metrics import guard_reads, reads_by_guard
from degarble_engine.telemetry.metric_table import TABLE, Row
from degarble_engine.telemetry.resident_memory import resident_bytes


class ServerMetrics:
    """Counted by asyncio; gauges are read from the engine when they are asked for."""

    def __init__(self, loop: EngineLoop, model_name: str) -> None:
        self._fixed: Mapping[str, str] = {"model_name": model_name, "engine": "0"}
        self._began = time.time()
        reads = self._reads(loop)
        by_guard = reads_by_guard(loop.engine)
        self._families = {key: _family(row, reads.get(key), by_guard.get(key)) for key, row in TABLE.items()}

    def _reads(self, loop: EngineLoop) -> dict[str, Callable[[], float]]:
        scheduler, pool = loop.engine.scheduler, loop.engine.manager.pool
        usable = pool.num_blocks - 1  # one is the trash block
        return {
            "running": lambda: len(scheduler.running),
            "waiting": lambda: _waiting(loop),
            "kv_usage": lambda: 1 - pool.num_free / usable,
            "kv_blocks": lambda: usable,
            "kv_blocks_free": lambda: pool.num_free,
            "preemptions": lambda: scheduler.num_preemptions,
            "steps": lambda: loop.engine.num_steps,
            "failed_steps": lambda: loop.num_failed_steps,
            "ready": lambda: int(loop.is_ready),
            "resident": resident_bytes,
            "started": lambda: self._began,
            **guard_reads(loop.engine),
        }

    def count(self, key: str, amount: float = 1, value: str = "") -> None:
        """Add to a counter of the table, under a value of its label where it has one."""
        family = self._families[key]
        assert isinstance(family, Counter)
        family.add(amount, value)

    def observe(self, key: str, value: float) -> None:
        """One more value of a histogram of the table."""
        family = self._families[key]
        assert isinstance(family, Histogram)
        family.observe(value)

    def counters(self) -> list[dict[str, Any]]:
        """All counters, for people: name, value of the label, number."""
        found = [family for family in self._families.values() if family.kind == "counter"]
        return [
            {"name": family.name, "of": " ".join(value for _, value in labels), "value": value}
            for family in found
            for _, labels, value in family.samples()
        ]

    def show(self) -> str:
        """All of it, as text."""
        return "".join(f"{line}\n" for family in self._families.values() for line in family.show(self._fixed))


def _family(
    row: Row, read: Callable[[], float] | None, each: Callable[[], Mapping[str, float]] | None = None
) -> Metric:
    if each is not None:
        assert row.label is not None, f"{row.name}: has no label"
        return ReadEach(row.name, row.help, row.label, each, row.kind)
    if read is not None:
        return Read(row.name, row.help, read, row.kind)
    if row.kind == "histogram":
        return Histogram(row.name, row.help, row.bounds)
    assert row.kind == "counter", f"{row.name}: nobody reads it"
    return Counter(row.name, row.help, row.label, row.values)


def _waiting(loop: EngineLoop) -> int:
    """Also those that the engine's thread has not seen yet; never below 0, as the two numbers are of two moments."""
    return max(0, loop.num_open - len(loop.engine.scheduler.running))
