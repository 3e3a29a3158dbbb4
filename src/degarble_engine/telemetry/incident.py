"""What is left of an incident: a folder with everything that replaying it needs, or with everything but the content.

    incident-<time>-<number>-<guard>/
        incident.json   the trip, the request with its real seed, prompt and output ids, the model and the engine
        trace.jsonl     the KV cache's last events, a whole trace (see incident_trace.py)
        layers.json     size of every block's output at the start, and in the last measured step

docs/explanation/incidents.md describes the fields. A folder appears complete or not at all; there are at most `most` of
them, and the first ones stay, since what begins an incident is worth more than what follows from it.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from degarble.errors import UsageError
from degarble.version import __version__
from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.watched import Watched
from degarble_engine.telemetry.incident_redaction import Redactor
from degarble_engine.telemetry.incident_trace import TraceRing, meta

log = logging.getLogger("degarble.incidents")
SCHEMA = 1
MAX_TRACE_BYTES = 8 << 20


class IncidentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where, how many, and whether the content is left out."""

    folder: Path
    most: int = 16
    is_redacted: bool = False
    model: Mapping[str, Any] = {}
    """How the model was opened: what a replay has to open again."""
    planted: tuple[str, ...] = ()


class IncidentWriter:
    """Belongs to the engine's thread. A folder that cannot be written is said once, and serving goes on."""

    def __init__(self, settings: IncidentSettings, engine: LLMEngine) -> None:
        """Raises UsageError if the folder cannot be made."""
        self._settings, self._engine = settings, engine
        self.ring = TraceRing(engine.manager)
        engine.manager.observe(self.ring)
        self.num_written = self.num_dropped = 0
        try:
            settings.folder.mkdir(parents=True, exist_ok=True)
            self._known = sum(1 for one in settings.folder.iterdir() if one.name.startswith("incident-"))
        except OSError as error:
            raise UsageError(f"{settings.folder}: incidents cannot be kept there: {error}") from None
        self._told: set[str] = set()

    def between_steps(self) -> None:
        """Forget old events, if there are many."""
        self.ring.turn()

    def on_trip(self, watched: Watched, trip: Trip) -> None:
        """One folder for the first damage in an answer."""
        name = watched.request.request_id
        if trip.kind is not TripKind.DAMAGE or name in self._told:
            return
        self._told.add(name)
        if self._known + self.num_written >= self._settings.most:
            self.num_dropped += 1
            return
        try:
            path = self._write(watched, trip)
        except OSError as error:
            self.num_dropped += 1
            log.error("no incident could be written: %s", error)
        else:
            self.num_written += 1
            log.warning("incident kept at %s", path)

    def forget(self, request_id: str) -> None:
        """The request has ended; its name may come again."""
        self._told.discard(request_id)

    def _write(self, watched: Watched, trip: Trip) -> Path:
        now = datetime.now(UTC)
        number = self._known + self.num_written
        target = self._settings.folder / f"incident-{now:%Y%m%dT%H%M%SZ}-{number:03d}-{trip.guard}"
        partial = Path(tempfile.mkdtemp(prefix=".incident.", dir=self._settings.folder))
        try:
            left_out = self._write_trace(partial / "trace.jsonl")
            facts = self._facts(watched, trip, now) | {"trace_left_out": left_out}
            (partial / "incident.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1))
            (partial / "layers.json").write_bytes(msgspec.json.format(msgspec.json.encode(self._layers()), indent=1))
            os.chmod(partial, 0o700)
            partial.rename(target)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        return target

    def _write_trace(self, path: Path) -> str | None:
        """Why there is no trace; None if there is one."""
        events = self.ring.events()
        if self._settings.is_redacted:
            events = Redactor().events(events)
        encoder, size = msgspec.json.Encoder(), 0
        with open(path, "wb") as stream:
            for number, event in enumerate([meta(self._engine, str(self._settings.model.get("name", ""))), *events]):
                line = encoder.encode({"n": number, **event}) + b"\n"
                size += len(line)
                if size > MAX_TRACE_BYTES:
                    break
                stream.write(line)
        if size <= MAX_TRACE_BYTES:
            return None
        path.unlink()
        return f"longer than {MAX_TRACE_BYTES} bytes"

    def _facts(self, watched: Watched, trip: Trip, now: datetime) -> dict[str, Any]:
        request, settings = watched.request, self._settings
        options = self._engine.options
        content: dict[str, Any] = {
            "prompt_ids": list(request.prompt_ids),
            "output_ids": [one.token_id for one in request.outputs],
            "stop": list(request.params.stop),
            "logit_bias": {str(token_id): bias for token_id, bias in request.params.logit_bias.items()},
            "namespace": request.namespace.tags(),
        }
        params = msgspec.to_builtins(request.params)
        for name in ("stop", "logit_bias"):
            params.pop(name)
        return {
            "schema": SCHEMA,
            "time": now.isoformat(),
            "degarble": __version__,
            "trip": msgspec.to_builtins(trip),
            "earlier_trips": [one.note for one in request.trips if one is not trip],
            "request": {
                "id": request.request_id,
                "num_prompt": len(request.prompt_ids),
                "num_output": request.num_outputs,
                "num_cached": request.num_cached,
                "num_preemptions": request.num_preemptions,
                "seed": request.generator.initial_seed(),
                "params": params,
                "entropies": list(watched.entropies),
                "content": None if settings.is_redacted else content,
            },
            "model": dict(settings.model),
            "engine": msgspec.to_builtins(options),
            "eos_ids": list(self._engine.eos_ids),
            "is_exact": options.is_batch_invariant and not watched.num_retries and not _is_guided(request),
            "planted": list(settings.planted),
        }

    def _layers(self) -> dict[str, Any]:
        describe = getattr(self._engine.supervisor, "block_sizes", None)
        found: dict[str, Any] = describe() if callable(describe) else {}
        return found


def _is_guided(request: object) -> bool:
    """Whether a grammar took part, which a replay does not have."""
    return getattr(request, "guide", None) is not None
