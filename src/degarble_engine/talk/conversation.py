"""What was said so far, and one more answer as it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any

import msgspec

from degarble_engine.endpoint.client import Endpoint

Message = dict[str, str]
THOUGHTS = ("reasoning_content", "reasoning")


class Reply(msgspec.Struct, kw_only=True):
    """One answer."""

    text: str = ""
    thoughts: str = ""
    finish_reason: str | None = None
    num_tokens: int | None = None
    ttft: float | None = None
    seconds: float = 0.0


class Conversation:
    """Turns of a user and a model; `params` go with every request."""

    def __init__(self, model: str, system: str | None = None, params: Mapping[str, Any] | None = None) -> None:
        self.model, self.system, self.params = model, system, dict(params or {})
        self.turns: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        """As they are sent."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, *self.turns]

    def reset(self) -> None:
        """Forget all turns; the system message stays."""
        self.turns.clear()

    async def ask(self, endpoint: Endpoint, text: str, show: Callable[[str, bool], None]) -> Reply:
        """`show(piece, is_thought)` while it comes. What came stays in the conversation, also if it was stopped.

        Raises EndpointFailed; a question without any answer is then taken back.
        """
        self.turns.append({"role": "user", "content": text})
        reply, start = Reply(), perf_counter()
        body = {
            "model": self.model, "messages": self.messages, "stream_options": {"include_usage": True}, **self.params
        }  # fmt: skip
        try:
            async for chunk in endpoint.stream("/chat/completions", body):
                _take(chunk, reply, start, show)
        finally:
            reply.seconds = perf_counter() - start
            if reply.text:
                self.turns.append({"role": "assistant", "content": reply.text})
            else:
                self.turns.pop()
        return reply


def _take(chunk: Mapping[str, Any], reply: Reply, start: float, show: Callable[[str, bool], None]) -> None:
    usage = chunk.get("usage")
    if isinstance(usage, dict) and type(usage.get("completion_tokens")) is int:
        reply.num_tokens = usage["completion_tokens"]
    for choice in chunk.get("choices") or ():
        delta = choice.get("delta") or {}
        text = delta.get("content") or ""
        thought = next((found for name in THOUGHTS if (found := delta.get(name))), "")
        if (text or thought) and reply.ttft is None:
            reply.ttft = perf_counter() - start
        reply.text += text
        reply.thoughts += thought
        reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
        if thought:
            show(thought, True)
        if text:
            show(text, False)
