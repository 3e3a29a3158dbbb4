"""Messages as clients send them to messages as templates expect them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from degarble_engine.server.api_error import invalid

Message = dict[str, Any]


def normalised(messages: Sequence[Message], most: int) -> list[Message]:
    """Contents in one text, arguments of calls as objects. Raises ApiError that names the message."""
    if not messages:
        raise invalid("messages must hold at least one message", "messages")
    if len(messages) > most:
        raise invalid(f"{len(messages)} messages, more than {most}", "messages")
    return [_normal(message, f"messages.{at}") for at, message in enumerate(messages)]


def _normal(message: Message, place: str) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or not role:
        raise invalid("a message needs a role, as text", f"{place}.role")
    found = {key: value for key, value in message.items() if value is not None or key == "content"}
    found["content"] = _text(message.get("content"), f"{place}.content")
    calls = found.get("tool_calls")
    if calls is not None:
        found["tool_calls"] = _calls(calls, f"{place}.tool_calls")
    elif found["content"] is None:
        raise invalid("a message without tool_calls needs content", f"{place}.content")
    found["role"] = "system" if role == "developer" else role  # OpenAI's newer name for the same
    return found


def _text(content: object, place: str) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"content must be text or a list of parts, found {type(content).__name__}", place)
    texts: list[str] = []
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text" or not isinstance(part.get("text"), str):
            raise invalid(f"only parts of type text can be read here, found {kind!r}", f"{place}.{at}", "unsupported")
        texts.append(part["text"])
    return "\n".join(texts)


def _calls(calls: object, place: str) -> list[Message]:
    """Arguments come as JSON in a text; templates write objects."""
    if not isinstance(calls, list):
        raise invalid("tool_calls must be a list", place)
    found: list[Message] = []
    for at, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise invalid("a call needs a function with a name", f"{place}.{at}")
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = msgspec.json.decode(arguments or "{}")
            except (msgspec.DecodeError, RecursionError):
                raise invalid("arguments must be JSON", f"{place}.{at}.function.arguments", "json") from None
        found.append({**call, "function": {**function, "arguments": arguments}})
    return found
