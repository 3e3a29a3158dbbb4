"""How an endpoint writes what is generated, whole or in chunks; the two endpoints say how a choice looks."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from typing import Any, ClassVar

from degarble_engine.server.choice import Delta
from degarble_engine.server.generation import Generation
from degarble_engine.server.request_fields import GenerationFields
from degarble_engine.server.service import Service


class Answer(ABC):
    """One answer with an id of its own."""

    prefix: ClassVar[str]
    operation: ClassVar[str]
    """OpenTelemetry's word for it."""
    object: ClassVar[str]
    chunk_object: ClassVar[str]

    def __init__(self, service: Service, fields: GenerationFields, request_id: str) -> None:
        self.service, self.fields = service, fields
        self.id = f"{self.prefix}-{request_id}"

    def opening(self, index: int, prompt_ids: Sequence[int]) -> dict[str, Any] | None:
        """A choice before its first token, if there is anything to say."""
        return None

    @abstractmethod
    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        """A choice of a chunk."""

    @abstractmethod
    def complete(self, index: int, deltas: Sequence[Delta], prompt_ids: Sequence[int]) -> dict[str, Any]:
        """A whole choice."""

    async def chunks(self, generation: Generation, fields: GenerationFields) -> AsyncIterator[dict[str, Any]]:
        """Chunks of a stream, the one of usage last."""
        for index, choice in enumerate(generation.choices):
            opening = self.opening(index, choice.job.prompt_ids)
            if opening is not None:
                yield self._envelope(self.chunk_object, [opening])
        async for index, delta in generation.deltas():
            is_told = delta.text or delta.finish_reason is not None
            if is_told or generation.choices[index].job.params.logprobs is not None or fields.return_token_ids:
                yield self._envelope(self.chunk_object, [self.piece(index, delta)])
        if fields.includes_usage:
            yield {**self._envelope(self.chunk_object, []), "usage": generation.usage}

    async def whole(self, generation: Generation) -> dict[str, Any]:
        """The answer in one piece."""
        deltas: list[list[Delta]] = [[] for _ in generation.choices]
        async for index, delta in generation.deltas():
            deltas[index].append(delta)
        choices = [
            self.complete(index, own, generation.choices[index].job.prompt_ids) for index, own in enumerate(deltas)
        ]
        return {**self._envelope(self.object, choices), "usage": generation.usage}

    @staticmethod
    def guarded(deltas: Sequence[Delta]) -> dict[str, Any]:
        """A field of the choice that ends, where guards saw something: `finish_reason` has no word for it."""
        trips = deltas[-1].trips
        return {"guards": [trip.note for trip in trips]} if trips else {}

    def _envelope(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        model = self.service.model.name
        return {
            "id": self.id, "object": kind, "created": int(time.time()), "model": model,
            "system_fingerprint": None, "choices": choices,
        }  # fmt: skip
