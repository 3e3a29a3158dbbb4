"""GET /openapi.json: requests from the very types that decode them, answers from openapi_answers.json.

What no schema can say (a prompt longer than the model's context, two fields that exclude each other) is answered with 400,
which is therefore an answer of every endpoint that takes a body.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from degarble.version import __version__
from degarble_engine.server.chat import ChatFields
from degarble_engine.server.completions import CompletionFields
from degarble_engine.server.service import Service
from degarble_engine.server.token_routes import DetokenizeFields, TokenizeFields

BODIES = {
    "/v1/chat/completions": ChatFields, "/v1/completions": CompletionFields,
    "/tokenize": TokenizeFields, "/detokenize": DetokenizeFields,
}  # fmt: skip
MODEL_ROUTE = "/v1/models/{name}"
TEXTS = {"/": "text/html", "/page.css": "text/css", "/page.js": "text/javascript", "/metrics": "text/plain"}
"""Paths that answer with something else than JSON."""
STREAMS = ("/v1/chat/completions", "/v1/completions")
OPEN = ("/version", "/health", "/ready", "/openapi.json", *TEXTS)
"""Paths that ask for no key, where keys are asked for at all."""
BODY_ERRORS = ("400", "401", "404", "408", "413", "415", "429")
GENERATION_ERRORS = ("500", "503", "504")


async def openapi(service: Service, request: Request) -> Response:
    """The document."""
    return Response(msgspec.json.encode(document()), media_type="application/json")


@cache
def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    _, components = msgspec.json.schema_components(BODIES.values(), ref_template="#/components/schemas/{name}")
    answers = msgspec.json.decode(
        resources.files("degarble_engine.server").joinpath("openapi_answers.json").read_bytes()
    )
    paths = {path: {"post": _posted(path)} for path in BODIES}
    paths |= {path: {"get": _got(path, summary)} for path, summary in answers.pop("summaries").items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "degarble serve", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, **answers},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


def _posted(path: str) -> dict[str, Any]:
    content: dict[str, Any] = {"application/json": {"schema": _of(f"answer {path}")}}
    if path in STREAMS:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    errors = (*BODY_ERRORS, *(GENERATION_ERRORS if path in STREAMS else ()))
    return {
        "operationId": path.strip("/").replace("/", "_"),
        "security": [{"key": []}, {}],
        "requestBody": {"required": True, "content": {"application/json": {"schema": _of(BODIES[path].__name__)}}},
        "responses": {"200": {"description": "The answer.", "content": content}, **_errors(errors)},
    }


def _got(path: str, summary: str) -> dict[str, Any]:
    kind = TEXTS.get(path, "application/json")
    schema = {"type": "string"} if path in TEXTS else _of(f"answer {path}")
    found: dict[str, Any] = {
        "summary": summary,
        "responses": {"200": {"description": summary, "content": {kind: {"schema": schema}}}},
    }
    if path in ("/health", "/ready"):
        found["responses"]["503"] = {"description": "No.", "content": {kind: {"schema": schema}}}
    if path not in OPEN:
        found["security"] = [{"key": []}, {}]
        found["responses"] |= _errors(("401",))
    if path == "/state":
        found["responses"] |= _errors(("503",))
    if path == MODEL_ROUTE:
        found["parameters"] = [
            {"name": "name", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        ]
        found["responses"] |= _errors(("404",))
    return found


def _errors(statuses: tuple[str, ...]) -> dict[str, Any]:
    content = {"application/json": {"schema": _of("error")}}
    return {status: {"description": "Refused, or failed.", "content": content} for status in statuses}


def _of(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{_key(name)}"}


def _key(name: str) -> str:
    """Keys of components may have letters, digits, `.`, `-` and `_`."""
    return "".join(char if char.isalnum() or char in ".-_" else "_" for char in name)
