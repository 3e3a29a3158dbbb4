"""What is known of one HTTP request when it has ended: the source of spans, of OpenTelemetry's metrics and of log lines.

Times are of `perf_counter`, which all threads of a process share; `begun_ns` ties them to the calendar. No text of a
client is kept: prompts are nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec


class ChoiceTimes(msgspec.Struct, kw_only=True):
    """Of one answer, as they become known."""

    started: float | None = None
    """When it got a place in the batch."""
    first: float | None = None
    """When its first token was delivered."""
    last: float | None = None
    num_tokens: int = 0
    finish_reason: str | None = None

    @property
    def tpot(self) -> float | None:
        """Mean seconds of a token after the first; None for fewer than two."""
        if self.first is None or self.last is None or self.num_tokens < 2:
            return None
        return (self.last - self.first) / (self.num_tokens - 1)


class GenerationRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked of the engine, and what came of it."""

    operation: str
    """chat or text_completion, OpenTelemetry's words."""
    response_id: str
    params: Mapping[str, Any]
    """Sampling parameters that the client gave."""
    usage: Mapping[str, Any]
    choices: tuple[ChoiceTimes, ...]
    engine_ids: tuple[str, ...]
    """Names of its sequences in the engine, in KV traces and in incidents."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request."""

    request_id: str
    method: str
    path: str
    status: int
    error_code: str | None
    begun_ns: int
    begun: float
    ended: float
    traceparent: str | None
    tracestate: str | None
    generation: GenerationRecord | None

    def nanoseconds(self, moment: float) -> int:
        """A time of perf_counter as nanoseconds since 1970."""
        return self.begun_ns + round((moment - self.begun) * 1e9)


Sink = Callable[[RequestRecord], None]
