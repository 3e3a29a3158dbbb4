"""What form an answer is asked to have: OpenAI's `response_format`, and vLLM's newer and older spellings of the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from degarble_engine.server.api_error import invalid

ANY_OBJECT: dict[str, Any] = {"type": "object"}
OPTIONS = ("json", "regex", "choice", "json_object")
"""Of vLLM's `structured_outputs` that can be had here."""


class Form(msgspec.Struct, frozen=True):
    """Exactly one of a schema, a regular expression and a list of texts."""

    param: str
    """The field that a client would have to change."""
    schema: dict[str, Any] | bool | None = None
    regex: str | None = None
    choices: tuple[str, ...] | None = None


class StructuredFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields of both endpoints."""

    response_format: dict[str, Any] | None = None
    structured_outputs: dict[str, Any] | None = None
    guided_json: str | dict[str, Any] | bool | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None

    @property
    def form(self) -> Form | None:
        """None: any text. Raises ApiError for a form that means nothing, or more than one."""
        found = list(self._forms())
        if len(found) > 1:
            raise invalid(f"{found[0].param} and {found[1].param} exclude each other", found[1].param)
        return found[0] if found else None

    def _forms(self) -> Iterator[Form]:
        if self.response_format is not None:
            form = _of_response_format(self.response_format)
            if form is not None:
                yield form
        old = {"json": self.guided_json, "regex": self.guided_regex, "choice": self.guided_choice}
        for name, value in old.items():
            if value is not None:
                yield _of_option(name, value, f"guided_{name}")
        for name, value in (self.structured_outputs or {}).items():
            if value is not None:
                yield _of_option(name, value, f"structured_outputs.{name}")


def _of_response_format(given: dict[str, Any]) -> Form | None:
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Form("response_format", schema=ANY_OBJECT)
    if kind != "json_schema":
        message = f"response_format can be text, json_object or json_schema here, found {kind!r}"
        raise invalid(message, "response_format", "unsupported")
    named = given.get("json_schema")
    if not isinstance(named, dict):
        raise invalid("a format of type json_schema needs an object json_schema", "response_format.json_schema")
    param = "response_format.json_schema.schema"
    return Form(param, schema=_schema(named.get("schema"), param))


def _of_option(name: str, value: object, param: str) -> Form:
    if name not in OPTIONS:
        raise invalid(f"structured_outputs knows {', '.join(OPTIONS)} here", param, "unsupported")
    if name == "json":
        return Form(param, schema=_schema(value, param))
    if name == "json_object" and value is True:
        return Form(param, schema=ANY_OBJECT)
    if name == "regex" and isinstance(value, str):
        return Form(param, regex=value)
    if name == "choice" and isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return Form(param, choices=tuple(value))
    raise invalid(f"{name} has a value that means nothing here", param, "invalid_type")


def _schema(value: object, param: str) -> dict[str, Any] | bool:
    """A schema may come as JSON in a text, as vLLM takes it."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            raise invalid("the schema is not JSON", param, "json") from None
    if not isinstance(value, (dict, bool)):
        raise invalid("a schema must be an object", param, "invalid_type")
    return value
