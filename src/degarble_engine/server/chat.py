"""POST /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from degarble_engine.server.answer import Answer
from degarble_engine.server.api_error import invalid
from degarble_engine.server.body import read
from degarble_engine.server.choice import Delta
from degarble_engine.server.messages import Message, normalised
from degarble_engine.server.request_fields import GenerationFields
from degarble_engine.server.service import Service
from degarble_engine.server.token_text import chat_logprobs

RESERVED = frozenset(("messages", "tools"))
"""Variables of a template that only their own fields set."""


class ChatFields(GenerationFields, kw_only=True, forbid_unknown_fields=True):
    """The request."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    """Given to the template, which may know it."""
    store: bool | None = None

    def require_supported(self) -> None:
        """Raise ApiError for what would otherwise be ignored in silence."""
        if self.tool_choice not in (None, "auto", "none"):
            raise invalid("tool_choice can be auto or none here: no call can be forced", "tool_choice", "unsupported")
        if self.top_logprobs is not None and not self.logprobs:
            raise invalid("top_logprobs needs logprobs: true", "top_logprobs")
        if RESERVED & set(self.chat_template_kwargs or {}):
            raise invalid("messages and tools have fields of their own", "chat_template_kwargs")
        if None not in (self.max_tokens, self.max_completion_tokens):
            raise invalid("max_tokens and max_completion_tokens exclude each other", "max_completion_tokens")

    @property
    def variables(self) -> dict[str, Any]:
        """Further variables of the template."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort is not None else {}
        return {**effort, **(self.chat_template_kwargs or {})}


async def chat(service: Service, request: Request) -> Response:
    """The endpoint."""
    fields = await read(request, ChatFields, service.limits)
    service.require_model(fields.model)
    fields.require_supported()
    messages = normalised(fields.messages, service.limits.messages)
    tools = fields.tools if fields.tool_choice != "none" else None
    prompt_ids = await service.in_background(
        partial(service.model.prompter.encode_chat, messages, tools, fields.variables)
    )
    wanted = fields.max_completion_tokens if fields.max_tokens is None else fields.max_tokens
    logprobs = (fields.top_logprobs or 0) if fields.logprobs else None
    jobs = service.jobs(fields, [prompt_ids], max_tokens=wanted, logprobs=logprobs, param="messages")
    return await service.answer(request, fields, jobs, ChatAnswer(service, fields, request.state.account.request_id))


class ChatAnswer(Answer):
    """`chat.completion` objects and chunks."""

    operation = "chat"
    prefix, object, chunk_object = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def opening(self, index: int, prompt_ids: Sequence[int]) -> dict[str, Any]:
        """The first delta says the role, and nothing else."""
        choice = {
            "index": index, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None
        }  # fmt: skip
        return {**choice, "prompt_token_ids": list(prompt_ids)} if self.fields.return_token_ids else choice

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        """See Answer."""
        return {"index": index, "delta": {"content": delta.text} if delta.text else {}, **self._end([delta])}

    def complete(self, index: int, deltas: Sequence[Delta], prompt_ids: Sequence[int]) -> dict[str, Any]:
        """See Answer."""
        text = "".join(delta.text for delta in deltas)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": index, "message": message, **self._end(deltas)}
        return {**choice, "prompt_token_ids": list(prompt_ids)} if self.fields.return_token_ids else choice

    def _end(self, deltas: Sequence[Delta]) -> dict[str, Any]:
        tokens = [token for delta in deltas for token in delta.tokens]
        assert isinstance(self.fields, ChatFields)
        table = self.service.model.tokenizer.table
        found: dict[str, Any] = {
            "logprobs": chat_logprobs(table, tokens) if self.fields.logprobs else None,
            "finish_reason": deltas[-1].finish_reason,
            "stop_reason": deltas[-1].stop_reason,
            **self.guarded(deltas),
        }
        if self.fields.return_token_ids:
            found["token_ids"] = [token.token_id for token in tokens]
        return found
