"""`--inject NAME`: which fault is meant, and where it goes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from degarble.checkpoint.workspace import Workspace
from degarble.errors import UsageError
from degarble.evidence import Evidence
from degarble.faults.interface import NotApplicable, Patient, faults
from degarble.kvcache.planted import PLANTED
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.guards.interface import Surroundings
from degarble_engine.planted.bookkeeping import bookkeeping_faults, plant_in_manager
from degarble_engine.planted.interface import Victim, live_faults


class Planted(msgspec.Struct, frozen=True, kw_only=True):
    """One fault that is in."""

    name: str
    where: str
    """`engine`, `bookkeeping`, or the place in the checkpoint."""

    def __str__(self) -> str:
        return f"{self.name} ({self.where})"


def listed() -> str:
    """All names, for `--inject list`."""
    lines = [f"{name:<26} engine       {fault.summary}" for name, fault in live_faults().items()]
    lines += [f"{name:<26} bookkeeping  {summary}" for name, summary in bookkeeping_faults().items()]
    lines += [f"{fault.name:<26} {fault.rule:<11}  {fault.summary}" for fault in faults()]
    return "\n".join(lines) + "\n"


def require_known(names: Sequence[str]) -> None:
    """Raises UsageError for a name that no fault has."""
    known = {*live_faults(), *PLANTED, *(fault.name for fault in faults())}
    for name in names:
        if name not in known:
            raise UsageError(
                f"--inject {name!r}: no fault is called so: `degarble serve MODEL --inject list` shows them"
            )


def plant_in_checkpoint(evidence: Evidence, names: Sequence[str], seed: int) -> tuple[Evidence, list[Planted]]:
    """Evidence of a view with the faults of weights, configs and tokenizers among the names; nothing on disk changes."""
    by_name = {fault.name: fault for fault in faults()}
    wanted = [by_name[name] for name in names if name in by_name and name not in live_faults() and name not in PLANTED]
    found: list[Planted] = []
    for fault in wanted:
        workspace = Workspace(evidence.get("source"))
        try:
            place = fault.function(Patient(evidence=evidence, workspace=workspace, rng=random.Random(seed)))
        except NotApplicable as reason:
            raise UsageError(f"--inject {fault.name}: cannot be planted in this checkpoint: {reason}") from None
        found.append(Planted(name=fault.name, where=f"{fault.rule}, {place.name()}"))
        evidence = Evidence(workspace.source(), evidence.get("settings"))
    return evidence, found


def plant_in_engine(engine: LLMEngine, surroundings: Surroundings, names: Sequence[str], seed: int) -> list[Planted]:
    """The faults of the engine among the names."""
    victim = Victim(engine=engine, surroundings=surroundings, rng=random.Random(seed))
    found: list[Planted] = []
    for name in names:
        if name in live_faults():
            live_faults()[name].function(victim)
            found.append(Planted(name=name, where="engine"))
        elif name in PLANTED:
            plant_in_manager(name, victim)
            found.append(Planted(name=name, where="bookkeeping"))
    return found
