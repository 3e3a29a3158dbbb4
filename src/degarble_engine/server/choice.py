"""One answer while it grows: ids to text, stop strings held back, tokens after the end dropped."""

from __future__ import annotations

import msgspec

from degarble.tokenizer.detokenize import Detokenizer, TextStream
from degarble.tokenizer.stop_strings import StopStrings
from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.sampler import Sampled
from degarble_engine.engine.trip import Trip
from degarble_engine.server.engine_loop import Job, Update


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What is new."""

    text: str = ""
    tokens: tuple[Sampled, ...] = ()
    offsets: tuple[int, ...] = ()
    """Characters before each token."""
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    trips: tuple[Trip, ...] = ()
    """What guards saw in the whole answer; told with its end."""


class Choice:
    """`choices[i]`."""

    def __init__(self, job: Job, detokenizer: Detokenizer) -> None:
        self.job = job
        self.num_tokens = 0
        self.finish_reason: FinishReason | None = None
        self._stream: TextStream = detokenizer.stream(job.prompt_ids)
        self._num_before = self._stream.num_without_text
        self._stops = StopStrings(job.params.stop).stream()
        self._num_chars = 0
        self._trips: tuple[Trip, ...] = ()

    @property
    def num_without_text(self) -> int:
        """Sampled ids that have no string."""
        return self._stream.num_without_text - self._num_before

    def take(self, update: Update) -> Delta:
        """Tokens of one step. If a stop string is found the choice ends, whatever the engine says."""
        shown: list[str] = []
        taken: list[Sampled] = []
        offsets: list[int] = []
        self._trips = update.trips
        for token in update.new:
            is_end = update.finish_reason is FinishReason.STOP and token is update.new[-1]
            taken.append(token)
            offsets.append(self._num_chars)
            text = "" if is_end else self._stream.push(token.token_id)  # what ends a text is no part of it
            shown.append(self._pushed(text))
            if self._stops.matched is not None:
                return self._ended(shown, taken, offsets, FinishReason.STOP, self._stops.matched)
        if update.finish_reason is None:
            return Delta(text="".join(shown), tokens=tuple(taken), offsets=tuple(offsets))
        shown.append(self._stops.push(self._stream.finish()))
        if self._stops.matched is not None:
            return self._ended(shown, taken, offsets, FinishReason.STOP, self._stops.matched)
        shown.append(self._stops.finish())
        return self._ended(shown, taken, offsets, update.finish_reason, update.stop_reason)

    def _pushed(self, text: str) -> str:
        self.num_tokens += 1
        self._num_chars += len(text)
        if self.num_tokens <= self.job.params.min_tokens:  # too early to stop
            return text
        return self._stops.push(text)

    def _ended(
        self,
        shown: list[str],
        taken: list[Sampled],
        offsets: list[int],
        reason: FinishReason,
        stop_reason: int | str | None,
    ) -> Delta:
        self.finish_reason = reason
        return Delta(
            text="".join(shown),
            tokens=tuple(taken),
            offsets=tuple(offsets),
            finish_reason=reason,
            stop_reason=stop_reason,
            trips=self._trips,
        )
