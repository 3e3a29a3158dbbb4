"""POST /tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from degarble_engine.server.api_error import invalid
from degarble_engine.server.body import read
from degarble_engine.server.messages import Message, normalised
from degarble_engine.server.service import Service
from degarble_engine.server.token_text import token_name


class TokenizeFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A text, or a conversation."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    add_special_tokens: bool = True
    return_token_strs: bool = False


class DetokenizeFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Ids."""

    model: str | None = None
    tokens: list[int]


async def tokenize(service: Service, request: Request) -> Response:
    """Ids of a prompt as the model would get it."""
    fields = await read(request, TokenizeFields, service.limits)
    service.require_model(fields.model)
    prompter = service.model.prompter
    if (fields.prompt is None) == (fields.messages is None):
        raise invalid("one of prompt and messages is needed", "prompt")
    if fields.messages is not None:
        messages = normalised(fields.messages, service.limits.messages)
        variables = {**(fields.chat_template_kwargs or {}), "add_generation_prompt": fields.add_generation_prompt}
        work = partial(prompter.encode_chat, messages, fields.tools, variables)
    else:
        work = partial(prompter.encode, fields.prompt or "", adds_special=fields.add_special_tokens)
    ids = await service.in_background(work)
    table = service.model.tokenizer.table
    names = [token_name(table, one) for one in ids] if fields.return_token_strs else None
    return _json(
        {"count": len(ids), "max_model_len": service.model.engine.max_model_len, "tokens": ids, "token_strs": names}
    )


async def detokenize(service: Service, request: Request) -> Response:
    """Text of ids, special tokens included."""
    fields = await read(request, DetokenizeFields, service.limits)
    service.require_model(fields.model)
    num_ids = service.model.tokenizer.num_ids
    bad = next((at for at, one in enumerate(fields.tokens) if not 0 <= one < num_ids), None)
    if bad is not None:
        raise invalid(f"token ids are from 0 to {num_ids - 1}, found {fields.tokens[bad]}", f"tokens.{bad}")
    text = await service.in_background(partial(service.model.showing.decode, fields.tokens))
    return _json({"prompt": text})


def _json(body: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
