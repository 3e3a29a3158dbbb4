"""Rows of the table of metrics that guards and incidents fill. Counted by the engine's thread, read by asyncio."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.trip import TripKind
from degarble_engine.guards.rail import CORRUPTED, RETRIED, STOPPED, GuardRail
from degarble_engine.telemetry.incident import IncidentWriter

TRIPS = {TripKind.DAMAGE: "guard_damage", TripKind.SUSPECT: "guard_suspicions", TripKind.OWN: "guard_own"}


def guard_reads(engine: LLMEngine) -> dict[str, Callable[[], float]]:
    """Single numbers, by their keys in the table; 0 where there are no guards."""
    return {
        "corrupted": _corrupted(engine),
        "quarantined": lambda: _quarantined(engine),
        "incidents": lambda: _incidents(engine)[0],
        "incidents_dropped": lambda: _incidents(engine)[1],
    }


def reads_by_guard(engine: LLMEngine) -> dict[str, Callable[[], Mapping[str, float]]]:
    """Numbers of each guard, by their keys in the table; none where there are no guards."""
    return {
        **{key: _counts(engine, kind.value) for kind, key in TRIPS.items()},
        "guard_stops": _counts(engine, STOPPED),
        "guard_retries": _counts(engine, RETRIED),
        "guard_silent": _silent(engine),
    }


def _counts(engine: LLMEngine, kind: str) -> Callable[[], Mapping[str, float]]:
    def read() -> Mapping[str, float]:
        rail = GuardRail.of(engine)
        return {name: rail.counts[name, kind] for name in rail.guards} if rail is not None else {}

    return read


def _corrupted(engine: LLMEngine) -> Callable[[], float]:
    def read() -> float:
        rail = GuardRail.of(engine)
        return float(rail.counts["", CORRUPTED]) if rail is not None else 0.0

    return read


def _silent(engine: LLMEngine) -> Callable[[], Mapping[str, float]]:
    def read() -> Mapping[str, float]:
        rail = GuardRail.of(engine)
        if rail is None:
            return {}
        silent = rail.silent
        return {name: float(name in silent) for name in rail.guards}

    return read


def _quarantined(engine: LLMEngine) -> int:
    rail = GuardRail.of(engine)
    return len(rail.quarantine.blocks) if rail is not None else 0


def _incidents(engine: LLMEngine) -> tuple[int, int]:
    rail = GuardRail.of(engine)
    keeper = rail.keeper if rail is not None else None
    return (keeper.num_written, keeper.num_dropped) if isinstance(keeper, IncidentWriter) else (0, 0)
