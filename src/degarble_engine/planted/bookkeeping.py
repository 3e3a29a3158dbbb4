"""The faults of `degarble kv stress --plant`, in the block manager of a running engine.

The manager's class is exchanged under it, so that its state stays. Their moments come as the seed of the server decides.
What they do to answers is foreign or missing rows: text of others, or nonsense; the proof after each step and the trace
of an incident name them (KVC602 to KVC627).
"""

from __future__ import annotations

from degarble.errors import UsageError
from degarble.kvcache.planted import PLANTED
from degarble_engine.planted.interface import Victim

NEEDED = {"window": "the engine evicts nothing by a window", "host": "the engine swaps nothing to the host"}
PATIENCE = 3


def bookkeeping_faults() -> dict[str, str]:
    """Name -> what it does, of those that can happen in the engine."""
    return {name: (kind.__doc__ or "").splitlines()[0] for name, kind in PLANTED.items() if not kind.needs}


def plant_in_manager(name: str, victim: Victim) -> None:
    """Exchange the manager's class. Raises UsageError for a fault that needs what the engine does not have."""
    kind = PLANTED[name]
    if kind.needs:
        raise UsageError(f"--inject {name}: cannot be planted here: {NEEDED[kind.needs]}")
    manager = victim.engine.manager
    manager.__class__ = kind
    manager.__dict__["patience"] = victim.rng.randrange(PATIENCE)
