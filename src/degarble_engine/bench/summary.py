"""Numbers of a run. A failed request has no latency: it is counted, by kind, and nowhere else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from degarble.version import __version__
from degarble_engine.bench.load import LoadRun
from degarble_engine.bench.timed_request import Timed

PERCENTILES = (50, 90, 95, 99)
MEASURES = ("ttft", "tpot", "itl", "e2e_latency", "queue_time")


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds."""

    count: int
    mean: float
    percentiles: dict[str, float]
    """`p50` to `p99`, linear between ranks, as numpy has them."""
    max: float


class Failures(msgspec.Struct, frozen=True):
    """Of one kind."""

    count: int
    example: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON document. Measures that nothing gave are left out."""

    schema_version: int = 1
    kind: str = "bench-serve"
    tool: dict[str, str]
    settings: dict[str, Any]
    model: str
    seconds: float
    num_sent: int
    num_completed: int
    failures: dict[str, Failures]
    finish_reasons: dict[str, int]
    prompt_tokens: int | None
    """None: the endpoint did not count them in every answer."""
    output_tokens: int
    are_tokens_counted: bool
    """False: chunks with text were counted, as the endpoint sent no usage."""
    chunks_a_token: float | None
    """1 for an endpoint that sends every token at once, in an event of its own."""
    requests_per_second: float
    output_tokens_per_second: float
    seconds_measures: dict[str, Measure]
    goodput: dict[str, Any] | None
    """Requests a second, and their share of all sent, that kept every bound."""

    @property
    def num_failed(self) -> int:
        """All kinds."""
        return self.num_sent - self.num_completed


def summarise(run: LoadRun) -> Summary:
    """The numbers."""
    done = [one for one in run.requests if one.failure is None]
    kinds = Counter(one.failure for one in run.requests if one.failure is not None)
    failures = {
        kind: Failures(count, next(one.message or "" for one in run.requests if one.failure == kind))
        for kind, count in kinds.most_common()
    }
    tokens = sum(one.num_tokens for one in done)
    is_counted = bool(done) and all(one.completion_tokens is not None for one in done)
    prompts = [one.prompt_tokens for one in done]
    bounds = dict(run.settings.goodput)
    good = sum(one.is_good(bounds) for one in run.requests)
    seconds = max(run.seconds, 1e-9)
    settings = msgspec.to_builtins(run.settings)
    settings["rate"] = settings["rate"] if run.settings.rate < float("inf") else None
    return Summary(
        tool={"name": "degarble", "version": __version__},
        settings=settings,
        model=run.model,
        seconds=run.seconds,
        num_sent=len(run.requests),
        num_completed=len(done),
        failures=failures,
        finish_reasons=dict(Counter(str(one.finish_reason) for one in done)),
        prompt_tokens=None if None in prompts else sum(one or 0 for one in prompts),
        output_tokens=tokens,
        are_tokens_counted=is_counted,
        chunks_a_token=sum(len(one.text_times) for one in done) / tokens if is_counted and tokens else None,
        requests_per_second=len(done) / seconds,
        output_tokens_per_second=tokens / seconds,
        seconds_measures=_measures(done),
        goodput={
            "bounds_seconds": bounds, "requests_per_second": good / seconds, "share": good / len(run.requests)
        } if bounds else None,
    )  # fmt: skip


def values_of(done: Sequence[Timed], name: str) -> list[float]:
    """Of all completed requests; gaps of all of them in one list."""
    if name == "itl":
        return [gap for one in done for gap in one.itl]
    return [value for one in done if (value := getattr(one, name)) is not None]


def _measures(done: Sequence[Timed]) -> dict[str, Measure]:
    return {name: _measure(values) for name in MEASURES if (values := values_of(done, name))}


def _measure(values: Sequence[float]) -> Measure:
    found = np.percentile(np.asarray(values), PERCENTILES)
    return Measure(
        count=len(values),
        mean=float(np.mean(values)),
        percentiles={f"p{at}": float(value) for at, value in zip(PERCENTILES, found, strict=True)},
        max=max(values),
    )
