"""One request, timed at the client: what a user of the endpoint feels.

    arrival ── queue_time ──► sent ── ttft ──► first text ── itl, itl, … ──► last text ──► end
                                └────────────────────── e2e_latency ─────────────────────┘

`tpot` is (last text - first text) / (tokens - 1). Tokens are the endpoint's own count (usage) where it sends one, and the
number of chunks with text otherwise, which is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from time import perf_counter
from typing import Any

import msgspec

from degarble_engine.bench.settings import LoadSettings
from degarble_engine.bench.workload import Planned
from degarble_engine.endpoint.client import Endpoint, EndpointFailed

TEXTS = ("content", "reasoning_content", "reasoning", "text")
"""Fields of a delta that a reader sees."""


class Timed(msgspec.Struct, kw_only=True):
    """Seconds after the start of the run."""

    number: int
    arrival: float
    sent: float = 0.0
    ended: float = 0.0
    text_times: list[float] = []
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """None: the endpoint counted none."""
    finish_reason: str | None = None
    failure: str | None = None
    """Kind."""
    message: str | None = None

    @property
    def queue_time(self) -> float:
        """Waited at this client for a place among those in flight."""
        return self.sent - self.arrival

    @property
    def num_tokens(self) -> int:
        """Of the answer."""
        return len(self.text_times) if self.completion_tokens is None else self.completion_tokens

    @property
    def ttft(self) -> float | None:
        """None without text."""
        return self.text_times[0] - self.sent if self.text_times else None

    @property
    def tpot(self) -> float | None:
        """None for fewer than two tokens."""
        if len(self.text_times) < 2 or self.num_tokens < 2:
            return None
        return (self.text_times[-1] - self.text_times[0]) / (self.num_tokens - 1)

    @property
    def itl(self) -> list[float]:
        """Gaps between chunks with text, which may hold several tokens."""
        return [later - earlier for earlier, later in pairwise(self.text_times)]

    @property
    def e2e_latency(self) -> float:
        """To the end of the answer."""
        return self.ended - self.sent

    def is_good(self, bounds: Mapping[str, float]) -> bool:
        """Within all bounds, judged from its arrival: waiting at the client is waiting too. A gap counts by its mean."""
        if self.failure is not None:
            return False
        found = {"ttft": self.ttft, "tpot": self.tpot, "e2e_latency": self.e2e_latency}
        found["itl"] = sum(self.itl) / len(self.itl) if self.itl else None
        for name in ("ttft", "e2e_latency"):
            value = found[name]
            found[name] = None if value is None else value + self.queue_time
        return all((value := found[name]) is None or value <= bound for name, bound in bounds.items())


async def send(endpoint: Endpoint, settings: LoadSettings, model: str, planned: Planned, start: float) -> Timed:
    """Never raises for what an endpoint does: a failure is a result."""
    timed = Timed(number=planned.number, arrival=planned.arrival, text_times=[], sent=perf_counter() - start)
    try:
        async with asyncio.timeout(settings.timeout_seconds):
            await _read(endpoint, settings, model, planned, timed, start)
        if timed.finish_reason is None:
            raise EndpointFailed("protocol", "the answer ended without a finish_reason")
        if not timed.text_times:
            raise EndpointFailed("no_text", f"the answer has no text, finish_reason {timed.finish_reason}")
    except TimeoutError:
        timed.failure, timed.message = "timeout", f"not ended after {settings.timeout_seconds:g} s"
    except EndpointFailed as error:
        timed.failure, timed.message = error.kind, error.message
    timed.ended = perf_counter() - start
    return timed


async def _read(
    endpoint: Endpoint, settings: LoadSettings, model: str, planned: Planned, timed: Timed, start: float
) -> None:
    path, body = body_of(settings, model, planned)
    async for chunk in endpoint.stream(path, body):
        now = perf_counter() - start
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            timed.prompt_tokens, timed.completion_tokens = _count(usage, "prompt"), _count(usage, "completion")
        for choice in chunk.get("choices") or ():
            part = choice.get("delta") or choice
            if any(part.get(name) for name in TEXTS):
                timed.text_times.append(now)
            timed.finish_reason = choice.get("finish_reason") or timed.finish_reason


def body_of(settings: LoadSettings, model: str, planned: Planned) -> tuple[str, dict[str, Any]]:
    """Path and body, with nothing that only some endpoints know unless it was asked for."""
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": planned.output_tokens,
        "temperature": settings.temperature,
        "stream_options": {"include_usage": True},
    }
    if settings.ignore_eos:
        body["ignore_eos"] = True
    if settings.api == "completions":
        return "/completions", {**body, "prompt": planned.prompt}
    return "/chat/completions", {**body, "messages": [{"role": "user", "content": planned.prompt}]}


def _count(usage: Mapping[str, Any], name: str) -> int | None:
    value = usage.get(f"{name}_tokens")
    return value if type(value) is int else None
