"""POST /v1/completions."""

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
from degarble_engine.server.request_fields import GenerationFields
from degarble_engine.server.service import Service
from degarble_engine.server.token_text import completion_logprobs

DEFAULT_TOKENS = 16
"""OpenAI's."""


class CompletionFields(GenerationFields, kw_only=True, forbid_unknown_fields=True):
    """The request."""

    prompt: str | list[Any]
    logprobs: int | None = None
    echo: bool = False
    suffix: str | None = None
    best_of: int | None = None
    add_special_tokens: bool = True

    def require_supported(self) -> None:
        """Raise ApiError for what would otherwise be ignored in silence."""
        if self.echo or self.suffix or self.best_of not in (None, self.n or 1):
            name = "echo" if self.echo else "suffix" if self.suffix else "best_of"
            raise invalid(f"{name} is not supported", name, "unsupported")


async def complete(service: Service, request: Request) -> Response:
    """The endpoint."""
    fields = await read(request, CompletionFields, service.limits)
    service.require_model(fields.model)
    fields.require_supported()
    prompts = prompts_of(fields.prompt, service.limits.sequences)
    encode = partial(service.model.prompter.encode, adds_special=fields.add_special_tokens)
    encoded = [await service.in_background(partial(encode, one)) if isinstance(one, str) else one for one in prompts]
    wanted = DEFAULT_TOKENS if fields.max_tokens is None else fields.max_tokens
    jobs = service.jobs(fields, encoded, max_tokens=wanted, logprobs=fields.logprobs, param="prompt")
    return await service.answer(
        request, fields, jobs, CompletionAnswer(service, fields, request.state.account.request_id)
    )


def prompts_of(prompt: str | list[Any], most: int) -> list[str | list[int]]:
    """A text, ids, texts, or lists of ids. Raises ApiError that names the one at fault."""
    if isinstance(prompt, str) or _are_ids(prompt):
        return [prompt]
    if not prompt or len(prompt) > most:
        raise invalid(f"prompt must hold 1 to {most} prompts, found {len(prompt)}", "prompt")
    for at, one in enumerate(prompt):
        if not isinstance(one, str) and not (isinstance(one, list) and _are_ids(one)):
            raise invalid("each prompt must be a text or a list of token ids", f"prompt.{at}", "invalid_type")
    return prompt


def _are_ids(value: list[Any]) -> bool:
    return bool(value) and all(type(one) is int for one in value)


class CompletionAnswer(Answer):
    """`text_completion` objects, whole and in chunks alike."""

    operation = "text_completion"
    prefix, object, chunk_object = "cmpl", "text_completion", "text_completion"

    def piece(self, index: int, delta: Delta) -> dict[str, Any]:
        """See Answer."""
        return self._choice(index, [delta])

    def opening(self, index: int, prompt_ids: Sequence[int]) -> dict[str, Any] | None:
        """Ids of the prompt, where ids were asked for."""
        if not self.fields.return_token_ids:
            return None
        return {**self._choice(index, [Delta()]), "prompt_token_ids": list(prompt_ids)}

    def complete(self, index: int, deltas: Sequence[Delta], prompt_ids: Sequence[int]) -> dict[str, Any]:
        """See Answer."""
        choice = self._choice(index, deltas)
        return {**choice, "prompt_token_ids": list(prompt_ids)} if self.fields.return_token_ids else choice

    def _choice(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        tokens = [token for delta in deltas for token in delta.tokens]
        assert isinstance(self.fields, CompletionFields)
        table = self.service.model.tokenizer.table
        offsets = [offset for delta in deltas for offset in delta.offsets]
        choice: dict[str, Any] = {
            "index": index,
            "text": "".join(delta.text for delta in deltas),
            "logprobs": completion_logprobs(table, tokens, offsets) if self.fields.logprobs is not None else None,
            "finish_reason": deltas[-1].finish_reason,
            "stop_reason": deltas[-1].stop_reason,
            **self.guarded(deltas),
        }
        if self.fields.return_token_ids:
            choice["token_ids"] = [token.token_id for token in tokens]
        return choice
