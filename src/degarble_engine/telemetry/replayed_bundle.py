"""A bundle replayed on a checkpoint, and what that says of where the fault was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from degarble.errors import TargetError
from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.engine.llm_engine import EngineOptions
from degarble_engine.server.served_model import DTYPES, open_served
from degarble_engine.telemetry.incident_replay import Recorded, Replayed, read_incident, replay

MAX_BLOCKS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a replay gave."""

    recorded: Recorded
    replayed: Replayed

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a report."""
        return {
            "kind": "replay",
            "guard": self.recorded.guard,
            "tokens": len(self.recorded.output_ids),
            "first_difference": self.replayed.first_difference,
            "is_exact": self.recorded.is_exact,
        }

    def told(self) -> str:
        """In a sentence."""
        place = self.replayed.first_difference
        if place is None:
            return "the same ids: the fault is in weights, tables or arithmetic"
        if not self.recorded.is_exact:
            return (
                f"other ids from token {place} on, but this incident need not replay exactly: nothing follows from it"
            )
        return f"other ids from token {place} on: the fault was in the state of the server, its cache or its batch"


def replay_bundle(bundle: str, model: str, evidence: Evidence | None = None) -> Outcome:
    """Raises TargetError for what is no incident, or no checkpoint that can be served."""
    recorded = read_incident(bundle)
    opened = evidence or Evidence(open_target(model), Settings())
    asked = str(recorded.model.get("dtype", "auto"))
    dtype = asked if asked in ("auto", *DTYPES) else "auto"
    served = open_served(opened, "replayed", dtype=dtype, options=_options(recorded))
    if any(not 0 <= one < served.engine.model.vocab_size for one in (*recorded.prompt_ids, *recorded.output_ids)):
        raise TargetError(f"{bundle}: holds token ids that {model} does not have")
    return Outcome(recorded=recorded, replayed=replay(recorded, served.engine))


def _options(recorded: Recorded) -> EngineOptions:
    """The engine's own options, as far as they change ids; memory as much as one request needs."""
    known = set(EngineOptions.__struct_fields__)
    try:
        options = msgspec.convert({k: v for k, v in recorded.engine.items() if k in known}, EngineOptions)
    except msgspec.ValidationError as error:
        raise TargetError(f"incident.json: engine: {error}") from None
    return msgspec.structs.replace(options, num_gpu_blocks=max(2, min(options.num_gpu_blocks, MAX_BLOCKS)))
