"""The answers of one HTTP request, from the engine's updates to deltas, with a deadline and an account."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from time import perf_counter
from typing import Any

from degarble.tokenizer.detokenize import Detokenizer
from degarble_engine.engine.request import FinishReason
from degarble_engine.server.api_error import ApiError
from degarble_engine.server.choice import Choice, Delta
from degarble_engine.server.engine_loop import EngineLoop, EngineStopped, Job, QueueFull, Ticket, Update
from degarble_engine.telemetry.request_record import ChoiceTimes
from degarble_engine.telemetry.server_metrics import ServerMetrics

RETRY_SECONDS = 1


class Generation:
    """`close` must be called, whatever happens: it ends what still runs."""

    def __init__(
        self,
        loop: EngineLoop,
        jobs: Sequence[Job],
        detokenizer: Detokenizer,
        metrics: ServerMetrics,
        *,
        num_prompts: int,
        seconds: float,
    ) -> None:
        """`num_prompts`: the jobs are that many groups of equal prompts. Raises ApiError where there is no room."""
        self.choices = [Choice(job, detokenizer) for job in jobs]
        self._metrics, self._seconds = metrics, seconds
        self._num_prompts = num_prompts
        self._begun = perf_counter()
        self.times = [ChoiceTimes() for _ in jobs]
        self._num_cached = [0] * len(jobs)
        self._ticket = _submitted(loop, jobs, metrics)

    @property
    def engine_ids(self) -> tuple[str, ...]:
        """Names of the sequences in the engine."""
        return tuple(self._ticket.request_ids)

    @property
    def usage(self) -> dict[str, Any]:
        """Tokens so far. A prompt counts once, however many answers it has."""
        answers = len(self.choices) // self._num_prompts
        prompt = sum(len(choice.job.prompt_ids) for choice in self.choices[::answers])
        completion = sum(choice.num_tokens for choice in self.choices)
        return {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": sum(self._num_cached[::answers])},
        }

    async def deltas(self) -> AsyncIterator[tuple[int, Delta]]:
        """Index of the choice and what is new, until all have ended. Raises ApiError."""
        num_open = len(self.choices)
        while num_open:
            update = await self._next()
            choice = self.choices[update.index]
            if choice.finish_reason is not None:
                continue  # ended by a stop string; this was on its way
            if update.finish_reason is FinishReason.ERROR:
                choice.finish_reason = FinishReason.ERROR
                self.times[update.index].finish_reason = FinishReason.ERROR
                self._metrics.count("finished", value=FinishReason.ERROR)
                raise _failed(update)
            if update.finish_reason is FinishReason.ABORT:
                raise ApiError(503, "the server is shutting down", code="shutting_down")
            delta = choice.take(update)
            self._count(update, choice, delta)
            if delta.finish_reason is not None:
                num_open -= 1
                self._ticket.abort(update.index)
            yield update.index, delta

    def close(self) -> None:
        """End what still runs."""
        self._ticket.close()
        for choice, times in zip(self.choices, self.times, strict=True):
            if choice.finish_reason is None:
                times.finish_reason = FinishReason.ABORT
                self._metrics.count("finished", value=FinishReason.ABORT)

    async def _next(self) -> Update:
        left = self._begun + self._seconds - perf_counter()
        try:
            return await asyncio.wait_for(self._ticket.updates.get(), max(left, 0.0))
        except TimeoutError:
            raise ApiError(504, f"no end after {self._seconds:g} s", code="timeout") from None

    def _count(self, update: Update, choice: Choice, delta: Delta) -> None:
        metrics, times, now = self._metrics, self.times[update.index], perf_counter()
        if times.first is None or times.last is None:
            times.started, times.first = update.started_at, now
            self._num_cached[update.index] = update.num_cached
            metrics.observe("ttft", now - self._begun)
            metrics.count("prompt_tokens", len(choice.job.prompt_ids))
            metrics.count("prefix_queries", len(choice.job.prompt_ids))
            metrics.count("prefix_hits", update.num_cached)
        else:
            metrics.observe("itl", now - times.last)
        times.last, times.num_tokens = now, choice.num_tokens
        metrics.count("generation_tokens", len(delta.tokens))
        if delta.finish_reason is not None:
            times.finish_reason = delta.finish_reason
            self._count_end(choice, times)

    def _count_end(self, choice: Choice, times: ChoiceTimes) -> None:
        metrics = self._metrics
        assert times.first is not None and times.last is not None and times.finish_reason is not None
        metrics.count("finished", value=times.finish_reason)
        metrics.count("without_text", choice.num_without_text)
        metrics.observe("e2e", times.last - self._begun)
        metrics.observe("prompt_length", len(choice.job.prompt_ids))
        metrics.observe("output_length", choice.num_tokens)
        metrics.observe("decode", times.last - times.first)
        if times.tpot is not None:
            metrics.observe("tpot", times.tpot)
        if times.started is not None:
            metrics.observe("queue", times.started - self._begun)
            metrics.observe("prefill", times.first - times.started)
            metrics.observe("inference", times.last - times.started)


def _failed(update: Update) -> ApiError:
    """Ended by a guard, since no token could be trusted; or the engine's own failure."""
    if str(update.stop_reason).startswith("guard:"):
        return ApiError(500, f"the answer is damaged: {update.error}", code="damaged_output")
    return ApiError(500, f"the engine failed: {update.error}", code="engine_error")


def _submitted(loop: EngineLoop, jobs: Sequence[Job], metrics: ServerMetrics) -> Ticket:
    try:
        return loop.submit(jobs)
    except QueueFull as error:
        raise ApiError(
            429, f"the queue is full: {error}", code="queue_full", headers={"retry-after": str(RETRY_SECONDS)}
        ) from None
    except EngineStopped as error:
        raise ApiError(503, str(error), code="not_ready", headers={"retry-after": str(RETRY_SECONDS)}) from None
