"""Rows of the table of metrics that guards and incidents fill. Counted by the engine's thread, read by asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.trip import TripKind
from degarble_engine.guards.rail import CORRUPTED, RETRIED, STOPPED, GuardRail
from degarble_engine.telemetry.exposition import Metric, Read, ReadEach
from degarble_engine.telemetry.incident import IncidentWriter

TRIPS = {
    TripKind.DAMAGE: ("degarble_guard_damage_total", "Answers with something that no healthy model does."),
    TripKind.SUSPECT: ("degarble_guard_suspicions_total", "Answers with something that is rare in a healthy model."),
    TripKind.OWN: ("degarble_guard_own_total", "Answers with what this model does when it is well: its own loops."),
}


def guard_metrics(engine: LLMEngine) -> list[Metric]:
    """All of them; nothing is shown where there are no guards."""
    found: list[Metric] = [ReadEach(*TRIPS[kind], "guard", _counts(engine, kind.value)) for kind in TripKind]
    return [
        *found,
        ReadEach("degarble_guard_stops_total", "Answers that a guard ended.", "guard", _counts(engine, STOPPED)),
        ReadEach("degarble_guard_retries_total", "Steps decoded again.", "guard", _counts(engine, RETRIED)),
        ReadEach("degarble_guard_silent", "1: the guard is on and sees nothing.", "guard", _silent(engine), "gauge"),
        Read(
            "vllm:corrupted_requests_total", "Requests with logits that are not finite.", _corrupted(engine), "counter"
        ),
        Read("degarble_quarantined_blocks", "Blocks that wait to be scrubbed.", lambda: _quarantined(engine)),
        Read("degarble_incidents_total", "Incidents that were kept.", lambda: _incidents(engine)[0], "counter"),
        Read("degarble_incidents_dropped_total", "Those beyond the limit.", lambda: _incidents(engine)[1], "counter"),
    ]


def _rail(engine: LLMEngine) -> GuardRail | None:
    return engine.supervisor if isinstance(engine.supervisor, GuardRail) else None


def _counts(engine: LLMEngine, kind: str) -> Callable[[], Mapping[str, float]]:
    def read() -> Mapping[str, float]:
        rail = _rail(engine)
        return {name: rail.counts[name, kind] for name in rail.guards} if rail is not None else {}

    return read


def _corrupted(engine: LLMEngine) -> Callable[[], float]:
    def read() -> float:
        rail = _rail(engine)
        return float(rail.counts["", CORRUPTED]) if rail is not None else 0.0

    return read


def _silent(engine: LLMEngine) -> Callable[[], Mapping[str, float]]:
    def read() -> Mapping[str, float]:
        rail = _rail(engine)
        return {name: float(name in rail.silent) for name in rail.guards} if rail is not None else {}

    return read


def _quarantined(engine: LLMEngine) -> int:
    rail = _rail(engine)
    return len(rail.quarantine.blocks) if rail is not None else 0


def _incidents(engine: LLMEngine) -> tuple[int, int]:
    rail = _rail(engine)
    keeper = rail.keeper if rail is not None else None
    return (keeper.num_written, keeper.num_dropped) if isinstance(keeper, IncidentWriter) else (0, 0)
