"""All guards of one engine: what they see is counted, logged, noted in answers, and acted on as the user chose.

begin_step   scrub blocks in quarantine; open the taps in one step of EVERY
see_logits   entropies of all rows -> guards of logits -> retry in the reference, or end; then guards of blocks
see_token    guards of tokens and text
see_end      what only an end shows; forget the request
end_step     requests whose step was decoded again give their blocks back and are computed afresh
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from torch import Tensor

from degarble_engine.engine.llm_engine import LLMEngine
from degarble_engine.engine.request import FinishReason, Request
from degarble_engine.engine.sampler import Sampled
from degarble_engine.engine.scheduler import Scheduled
from degarble_engine.engine.supervisor import Supervisor
from degarble_engine.engine.trip import Trip, TripKind
from degarble_engine.guards.activation_collapse import ActivationCollapse
from degarble_engine.guards.block_tap import EVERY
from degarble_engine.guards.fallback_decode import FallbackDecode
from degarble_engine.guards.interface import Action, Guard, Row, Surroundings
from degarble_engine.guards.quarantine import Quarantine
from degarble_engine.guards.row_entropy import row_entropies
from degarble_engine.guards.watched import Watched

log = logging.getLogger("degarble.guards")
STOPPED, RETRIED, CORRUPTED = "stopped", "retried", "corrupted"
MAX_LOGGED = 1000
"""Lines of one guard; what comes after is counted."""


class Keeper(Protocol):
    """Keeps what an incident needs; see telemetry/incident.py."""

    def between_steps(self) -> None:
        """Nothing is in flight."""

    def on_trip(self, watched: Watched, trip: Trip) -> None:
        """A guard spoke; the request still holds its blocks."""

    def forget(self, request_id: str) -> None:
        """The request has ended."""


class GuardRail(Supervisor):
    """Belongs to one engine and to its thread; `counts` may be read from others."""

    def __init__(
        self,
        engine: LLMEngine,
        surroundings: Surroundings,
        guards: Mapping[str, tuple[Guard, Action]],
        *,
        fallback: FallbackDecode | None = None,
    ) -> None:
        """`guards`: those that are on."""
        self._engine, self.surroundings, self.fallback = engine, surroundings, fallback
        self.guards = dict(guards)
        self.keeper: Keeper | None = None
        """Who keeps incidents."""
        self.quarantine = Quarantine(engine.manager, engine.cache)
        self.counts: Counter[tuple[str, str]] = Counter()
        """(guard, kind) -> trips; also (guard, STOPPED) and (guard, RETRIED)."""
        self.watched: dict[str, Watched] = {}
        self._entropies: dict[str, list[float]] = {}
        self._again: list[Request] = []
        self._spread: Tensor | None = None
        reads_text = any(guard.reads_text for guard, _ in guards.values())
        self._showing = surroundings.showing if reads_text else None
        self._collapse = next((one for one, _ in guards.values() if isinstance(one, ActivationCollapse)), None)

    @classmethod
    def of(cls, engine: LLMEngine) -> GuardRail | None:
        """The one over an engine, if there is one."""
        return engine.supervisor if isinstance(engine.supervisor, cls) else None

    @property
    def silent(self) -> dict[str, str]:
        """Guards that are on and can see nothing, with the reason: unguarded is never shown as clean."""
        return {name: why for name, (guard, _) in self.guards.items() if (why := guard.silence) is not None}

    def begin_step(self) -> None:
        """See Supervisor."""
        self.quarantine.scrub()
        if self.keeper is not None:
            self.keeper.between_steps()
        tap = self.surroundings.tap
        if tap is not None and self._collapse is not None and self._engine.num_steps % EVERY == 0:
            tap.open()

    def see_logits(self, parts: Sequence[Scheduled], logits: list[Tensor]) -> None:
        """See Supervisor."""
        if not self.guards:
            return
        self._entropies.clear()
        entropies = iter(row_entropies(logits))
        rows: list[Row] = []
        for at, (part, own) in enumerate(zip(parts, logits, strict=True)):
            known = [next(entropies) for _ in range(own.shape[0])]
            watched = self._watch(part.request)
            if not all(math.isfinite(one) for one in known):
                self.counts["", CORRUPTED] += not watched.is_corrupted
                watched.is_corrupted = True
                known = self._decode_again(watched, part, logits, at) or known
            self._entropies[part.request.request_id] = known
            rows += [Row(watched, one) for one in known]
        for guard, _ in self.guards.values():
            for watched, trip in guard.see_logits(rows):
                self._settle(guard, watched, trip)
        self._see_blocks(parts)

    def see_token(self, request: Request, sampled: Sampled, row: int) -> None:
        """See Supervisor."""
        if not self.guards:
            return
        watched = self._watch(request)
        known = self._entropies.get(request.request_id, [])
        watched.entropies.append(known[row] if row < len(known) else math.nan)
        if watched.stream is not None:
            watched.text += watched.stream.push(sampled.token_id)
        for guard, _ in self.guards.values():
            trip = guard.see_token(watched, sampled.token_id)
            if trip is not None:
                self._settle(guard, watched, trip)
        if sampled.token_id in self.surroundings.end_ids:
            watched.is_ended_by_model = True

    def see_end(self, request: Request) -> None:
        """See Supervisor."""
        watched = self.watched.pop(request.request_id, None)
        if request in self._again:  # what it published in this very step rests on rows that are in doubt
            self.quarantine.admit(self._engine.manager.sequence(request.request_id).live_blocks())
        if watched is not None and request.finish_reason is not FinishReason.ABORT:
            self._see_end(watched)
        if self.keeper is not None:
            self.keeper.forget(request.request_id)

    def _see_end(self, watched: Watched) -> None:
        if watched.stream is not None:
            watched.text += watched.stream.finish()
        for guard, _ in self.guards.values():
            trip = guard.see_end(watched)
            if trip is not None:
                self._settle(guard, watched, trip)

    def end_step(self) -> None:
        """See Supervisor."""
        for request in self._again:
            if request.finish_reason is None and request in self._engine.scheduler.running:
                self.quarantine.admit(self._engine.manager.sequence(request.request_id).live_blocks())
                self._engine.scheduler.recompute(request)
        self._again.clear()
        self.quarantine.scrub()

    def block_sizes(self) -> dict[str, Any]:
        """Std of every block's output, at the start and in the last measured step (median and least of its tokens)."""
        tap, learnt = self.surroundings.tap, self._collapse.baseline if self._collapse is not None else None
        if tap is None or learnt is None:
            return {"left_out": "activation-collapse is off, or could measure nothing"}
        last = self._spread
        return {
            "blocks": learnt.names,
            "at_start": {"median": learnt.median, "least": learnt.least},
            "last_step": None if last is None else {"median": last.median(1).values.tolist(), "least": last.amin(1).tolist()},
        }  # fmt: skip

    def _watch(self, request: Request) -> Watched:
        known = self.watched.get(request.request_id)
        if known is None:
            stream = self._showing.stream(request.prompt_ids) if self._showing is not None else None
            known = Watched(request, stream)
            self.watched[request.request_id] = known
        return known

    def _decode_again(self, watched: Watched, part: Scheduled, logits: list[Tensor], at: int) -> list[float] | None:
        """Entropies of the logits that the reference gives instead; None if it was not asked, or has none either."""
        name = next((name for name, (guard, action) in self.guards.items() if _is_retried(guard, action)), None)
        if name is None or self.fallback is None or watched.num_retries:
            return None
        watched.num_retries += 1
        sequence = self._engine.manager.sequence(part.request.request_id)
        found = self.fallback.logits(sequence.token_ids[: part.work.end], logits[at].shape[0])
        if found is None:
            return None
        logits[at] = found
        self.counts[name, RETRIED] += 1
        log.warning("%s: %s: step decoded again in the reference", watched.request.request_id, name)
        trip = Trip(
            guard=name, kind=TripKind.DAMAGE, num_outputs=watched.num_outputs,
            message=f"logits after token {watched.num_outputs} were not finite; decoded again in the reference precision",
        )  # fmt: skip
        self._record(watched, trip, self.guards[name][1])
        self.quarantine.admit(sequence.live_blocks())
        self._again.append(part.request)
        return row_entropies([found])

    def _see_blocks(self, parts: Sequence[Scheduled]) -> None:
        tap = self.surroundings.tap
        if tap is None or self._collapse is None or not tap.is_open:
            return
        spread = tap.take()
        if spread is None:
            return
        self._spread = spread
        rows, end = [], 0
        for part in parts:
            end += part.work.end - part.work.start
            if part.work.start >= 1 or part.work.end - part.work.start > 1:  # a lone first token has sizes of its own
                rows.append((self._watch(part.request), end - 1))
        for watched, trip in self._collapse.see_blocks(spread, rows):
            self._settle(self._collapse, watched, trip)

    def _settle(self, guard: Guard, watched: Watched, trip: Trip) -> None:
        action = self.guards[guard.name][1]
        self._record(watched, trip, action)
        request = watched.request
        is_over = request.finish_reason not in (None, guard.ends_with)
        if trip.kind is not TripKind.DAMAGE or action not in (Action.STOP, Action.RETRY) or is_over:
            return
        if guard.ends_with is FinishReason.ERROR:
            self.quarantine.admit(self._engine.manager.sequence(request.request_id).live_blocks())
        request.finish(guard.ends_with, f"guard:{guard.name}")
        self.counts[guard.name, STOPPED] += 1

    def _record(self, watched: Watched, trip: Trip, action: Action) -> None:
        self.counts[trip.guard, trip.kind.value] += 1
        if self.counts[trip.guard, trip.kind.value] <= MAX_LOGGED and trip.kind is not TripKind.OWN:
            log.warning("%s: %s (%s): %s", watched.request.request_id, trip.guard, trip.kind.value, trip.message)
        if action is not Action.LOG:
            watched.request.trips.append(trip)
        if self.keeper is not None:
            self.keeper.on_trip(watched, trip)


def _is_retried(guard: Guard, action: Action) -> bool:
    return guard.is_in_logits and action is Action.RETRY
