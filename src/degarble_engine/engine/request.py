"""One request in the engine: its tokens, what it asks for, how far it is, and why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import torch

from degarble.kvcache.namespace import PLAIN, Namespace
from degarble_engine.engine.guide import Guide
from degarble_engine.engine.sampler import Sampled, TokenCounts
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.engine.trip import Trip


class FinishReason(StrEnum):
    """OpenAI's `stop` and `length`, and what only an engine knows."""

    STOP = "stop"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    """A guard ended it: OpenAI's word for an answer that is not to be trusted to its end."""
    ABORT = "abort"
    ERROR = "error"


class Request:
    """Changed by the engine only."""

    def __init__(
        self,
        request_id: str,
        prompt_ids: Sequence[int],
        params: SamplingParams,
        *,
        eos_ids: Sequence[int] = (),
        vocab_size: int,
        namespace: Namespace = PLAIN,
        guide: Guide | None = None,
    ) -> None:
        self.request_id, self.params, self.namespace, self.guide = request_id, params, namespace, guide
        self.prompt_ids = tuple(prompt_ids)
        self.end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else frozenset(eos_ids))
        self.outputs: list[Sampled] = []
        self.token_ids = list(prompt_ids)
        """Prompt and output."""
        self.num_cached = 0
        """Tokens that the prefix cache had."""
        self.num_preemptions = 0
        self.started_at: float | None = None
        """When it first had a place in the batch, by perf_counter."""
        self.is_open = False
        """Whether the block manager knows it."""
        self.finish_reason: FinishReason | None = None
        self.stop_reason: int | str | None = None
        """The token or string that ended it."""
        self.error: str | None = None
        """Why it ended with FinishReason.ERROR, where that is its own affair."""
        self.trips: list[Trip] = []
        """What guards saw."""
        self.generator = torch.Generator()
        self.generator.manual_seed(params.seed if params.seed is not None else torch.seed() & 0x7FFFFFFFFFFFFFFF)
        self._vocab_size = vocab_size
        self._counts: TokenCounts | None = None

    @property
    def num_outputs(self) -> int:
        """Sampled tokens."""
        return len(self.outputs)

    @property
    def counts(self) -> TokenCounts | None:
        """For penalties; None where none is asked for."""
        if self._counts is None and self.params.changes_logits:
            self._counts = TokenCounts(self.prompt_ids, self._vocab_size)
        return self._counts

    @property
    def banned_ids(self) -> Sequence[int]:
        """Ends that may not come yet."""
        return sorted(self.end_ids) if self.num_outputs < self.params.min_tokens else ()

    def append(self, sampled: Sampled) -> None:
        """One more token; may end the request."""
        self.outputs.append(sampled)
        self.token_ids.append(sampled.token_id)
        if self._counts is not None:
            self._counts.add(sampled.token_id)
        if sampled.token_id in self.end_ids and self.num_outputs >= self.params.min_tokens:
            self.finish(FinishReason.STOP, sampled.token_id)
        elif self.num_outputs >= self.params.max_tokens:
            self.finish(FinishReason.LENGTH)
        elif self.guide is not None:
            self._guided(self.guide, sampled.token_id)

    def _guided(self, guide: Guide, token_id: int) -> None:
        self.error = guide.take(token_id)
        if self.error is not None:
            self.finish(FinishReason.ERROR)

    def finish(self, reason: FinishReason, cause: int | str | None = None) -> None:
        """The first reason stays."""
        if self.finish_reason is None:
            self.finish_reason, self.stop_reason = reason, cause
