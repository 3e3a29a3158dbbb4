"""The OpenAPI document is of the routes that there are, and what comes out keeps to it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from degarble_engine.server.app import ROUTES
from degarble_engine.server.openapi import OPEN, document
from tests.degarble_engine.server.served import run, serving

BODY: dict[str, Any] = {"max_tokens": 3, "return_token_ids": True, "n": 2}
ASKED: list[tuple[str, dict[str, Any] | None, int]] = [
    ("/v1/chat/completions", {**BODY, "messages": [{"role": "user", "content": "a"}], "logprobs": True}, 200),
    ("/v1/chat/completions", {"messages": []}, 400),
    ("/v1/completions", {**BODY, "prompt": "a", "logprobs": 1}, 200),
    ("/v1/completions", {"prompt": 3}, 400),
    ("/tokenize", {"prompt": "a", "return_token_strs": True}, 200),
    ("/detokenize", {"tokens": [60, 61]}, 200),
    *((path, None, 200) for path in ("/v1/models", "/version", "/health", "/ready", "/state", "/openapi.json")),
]


def test_it_has_every_route_and_no_other() -> None:
    wanted = {(path.replace(":path", ""), method.lower(), needs_key) for method, path, _, needs_key in ROUTES}
    found = {(path, method) for path, methods in document()["paths"].items() for method in methods}
    assert {(path, method) for path, method, _ in wanted} == found
    assert {path for path, _, needs_key in wanted if not needs_key} == set(OPEN)
    assert {
        path for path, ways in document()["paths"].items() for way in ways.values() if "security" not in way
    } == set(OPEN)


def test_answers_keep_to_it() -> None:
    async def asked() -> list[tuple[int, Any]]:
        async with serving() as (client, _):
            answers = [
                await (client.get(path) if body is None else client.post(path, json=body)) for path, body, _ in ASKED
            ]
            return [(answer.status_code, answer.json()) for answer in answers]

    whole = document()
    for (path, body, status), (found, answer) in zip(ASKED, run(asked), strict=True):
        assert found == status, (path, answer)
        responses = whole["paths"][path]["get" if body is None else "post"]["responses"]
        schema = responses[str(status)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer, {**schema, "components": whole["components"]})
    with pytest.raises(jsonschema.ValidationError):
        name = whole["paths"]["/version"]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        jsonschema.validate({}, {**name, "components": whole["components"]})
