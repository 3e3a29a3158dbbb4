"""Clients that mean no good, or know no better: each gets its status, and the server goes on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx
import pytest

from degarble_engine.server.limits import Limits
from degarble_engine.server.service import Service
from tests.degarble_engine.server.served import is_free, run, serving, until

PATH = "/v1/completions"
JSON = {"content-type": "application/json"}
GOOD = {"prompt": "abc", "max_tokens": 2, "temperature": 0}


async def error_of(client: httpx.AsyncClient, **request: Any) -> tuple[int, str | None, str | None]:
    response = await client.post(PATH, **request)
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and error["message"]
    return response.status_code, error["code"], error["param"]


BODIES: list[tuple[bytes, tuple[int, str | None, str | None]]] = [
    (b"", (400, "json", None)),
    (b"{", (400, "json", None)),
    (b'{"prompt": "a"} x', (400, "json", None)),
    (b'{"prompt": "\xff"}', (400, "json", None)),
    (b'{"prompt": "\\ud800"}', (400, "json", None)),
    (b"[]", (400, "invalid_type", None)),
    (b"null", (400, "invalid_type", None)),
    (b"{}", (400, "invalid_type", "prompt")),
    (b'{"prompt": 3}', (400, "invalid_type", "prompt")),
    (b'{"prompt": "a", "max_tokens": "x"}', (400, "invalid_type", "max_tokens")),
    (b'{"prompt": "a", "max_tokens": 1e99}', (400, "invalid_type", "max_tokens")),
    (b'{"prompt": "a", "max_tokens": 0}', (400, "invalid_value", "max_tokens")),
    (b'{"prompt": "a", "max_tokens": -5}', (400, "invalid_value", "max_tokens")),
    (b'{"prompt": "a", "temprature": 1}', (400, "invalid_type", "temprature")),
    (b'{"prompt": "a", "temperature": 9}', (400, "invalid_value", "temperature")),
    (b'{"prompt": "a", "temperature": NaN}', (400, "json", None)),
    (b'{"prompt": "a", "top_p": 0}', (400, "invalid_value", "top_p")),
    (b'{"prompt": "a", "n": 0}', (400, "invalid_value", "n")),
    (b'{"prompt": "a", "n": 1000000}', (400, "invalid_value", "n")),
    (b'{"prompt": "a", "seed": 99999999999999999999}', (400, "invalid_value", "seed")),
    (b'{"prompt": "a", "logprobs": 99}', (400, "invalid_value", "logprobs")),
    (b'{"prompt": "a", "stop": [""]}', (400, "invalid_value", "stop")),
    (b'{"prompt": "a", "logit_bias": {"9999": 1}}', (400, "invalid_value", "logit_bias")),
    (b'{"prompt": "a", "logit_bias": {"x": 1}}', (400, "invalid_type", "logit_bias")),
    (b'{"prompt": "a", "stream_options": {}}', (400, "invalid_value", "stream_options")),
    (b'{"prompt": "a", "echo": true}', (400, "unsupported", "echo")),
    (b'{"prompt": ""}', (400, "invalid_value", "prompt")),
    (b'{"prompt": []}', (400, "invalid_value", "prompt")),
    (b'{"prompt": [[]]}', (400, "invalid_type", "prompt.0")),
    (b'{"prompt": ["a", 3]}', (400, "invalid_type", "prompt.1")),
    (b'{"prompt": [true]}', (400, "invalid_type", "prompt.0")),
    (b'{"prompt": [512]}', (400, "invalid_value", "prompt")),
    (b'{"prompt": [-1]}', (400, "invalid_value", "prompt")),
    (b'{"prompt": [18446744073709551616]}', (400, "invalid_value", "prompt")),
    (b'{"prompt": "a", "model": "gpt-9"}', (404, "model_not_found", "model")),
    (b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}", (400, "json_depth", None)),
    (b'{"prompt": "' + b'\\"' * 500_000, (400, "json", None)),
    (b'{"prompt": "' + b"a b c " * 2000 + b'"}', (400, "context_length_exceeded", "prompt")),
]


def test_bad_bodies_are_named_and_harm_nothing() -> None:
    async def all_of_them() -> list[tuple[int, str | None, str | None]]:
        async with serving() as (client, _):
            found = [await error_of(client, content=body, headers=JSON) for body, _ in BODIES]
            assert (await client.post(PATH, json=GOOD)).status_code == 200
            return found

    for (body, wanted), found in zip(BODIES, run(all_of_them), strict=True):
        assert found == wanted, body[:60]


def test_long_slow_and_foreign_bodies() -> None:
    limits = Limits(body_bytes=2000, body_seconds=0.05)

    async def slow() -> Any:
        yield b'{"prompt"'
        await asyncio.sleep(5)

    async def bodies() -> list[tuple[int, str | None, str | None]]:
        async with serving(limits=limits) as (client, _):
            chunked = [b'{"prompt": "', *[b"a" * 500] * 5, b'"}']

            async def long() -> Any:
                for chunk in chunked:
                    yield chunk

            return [
                await error_of(client, content=b"x" * 2001, headers=JSON),
                await error_of(client, content=long(), headers=JSON),
                await error_of(client, content=slow(), headers=JSON),
                await error_of(client, content=b"prompt=a", headers={"content-type": "text/plain"}),
            ]

    assert [found[:2] for found in run(bodies)] == [
        (413, "body_too_large"), (413, "body_too_large"), (408, "timeout"), (415, None)
    ]  # fmt: skip


def test_a_key_is_asked_for() -> None:
    async def tries() -> list[int]:
        async with serving(keys=("first-key", "second-key")) as (client, _):
            given = [None, "Bearer", "Bearer first-ke", "Basic first-key", "Bearer ü", "Bearer second-key"]
            headers = [{} if one is None else {"authorization": one.encode()} for one in given]
            found = [(await client.post(PATH, json=GOOD, headers=one)).status_code for one in headers]  # type: ignore[arg-type]
            assert (await client.get("/v1/models")).status_code == 401
            assert (await client.get("/health")).status_code == 200
            return found

    assert run(tries) == [401, 401, 401, 401, 401, 200]


def test_other_paths_and_methods() -> None:
    async def asked() -> list[tuple[int, str]]:
        async with serving() as (client, _):
            answers = [
                await client.get("/v1/nothing"), await client.get(PATH), await client.get("/v1/models/x"),
            ]  # fmt: skip
            assert (await client.get("/v1/models/tiny")).json()["id"] == "tiny"
            assert (await client.get("/v1/models")).json()["data"][0]["object"] == "model"
            return [(one.status_code, one.json()["error"]["code"]) for one in answers]

    assert run(asked) == [(404, "not_found"), (405, "method_not_allowed"), (404, "model_not_found")]


def test_a_full_queue_says_when_to_come_again() -> None:
    async def full() -> None:
        async with serving(limits=Limits(queued=0), max_num_seqs=1) as (client, service):
            body = {**GOOD, "max_tokens": 400, "ignore_eos": True}
            first = asyncio.create_task(client.post(PATH, json=body))
            await until(lambda: service.loop.num_open == 1)
            refused = await client.post(PATH, json=GOOD)
            assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
            assert refused.json()["error"]["type"] == "rate_limit_error"
            first.cancel()
            await asyncio.wait({first})
            await until(lambda: is_free(service))
            assert (await client.post(PATH, json=GOOD)).status_code == 200
            shown = (await client.get("/metrics")).text
            assert 'degarble_rejected_requests_total{model_name="tiny",engine="0",code="queue_full"} 1' in shown
            assert 'vllm:request_success_total{model_name="tiny",engine="0",finished_reason="abort"} 1' in shown

    run(full)


def test_prompts_that_wait_to_be_encoded_are_bounded() -> None:
    async def many() -> list[int]:
        async with serving(limits=Limits(queued=1)) as (client, service):
            gate = threading.Event()
            held = asyncio.create_task(service.in_background(gate.wait))
            await asyncio.sleep(0)
            posts = [asyncio.create_task(client.post("/tokenize", json={"prompt": "a"})) for _ in range(3)]
            await asyncio.wait(posts, return_when=asyncio.FIRST_COMPLETED)
            gate.set()
            await held
            return sorted([(await post).status_code for post in posts])

    assert run(many) == [200, 429, 429]


def test_draining_takes_nothing_and_ends_what_runs() -> None:
    async def draining() -> None:
        async with serving() as (client, service):
            running = asyncio.create_task(client.post(PATH, json={**GOOD, "max_tokens": 60, "ignore_eos": True}))
            await until(lambda: service.loop.num_open == 1)
            service.loop.is_draining = True
            assert (await client.get("/ready")).status_code == 503
            assert (await client.get("/health")).status_code == 200
            assert (await client.post(PATH, json=GOOD)).status_code == 503
            assert (await running).json()["usage"]["completion_tokens"] == 60

    run(draining)


def failing(service: Service) -> None:
    def fail(parts: Any) -> Any:
        raise RuntimeError("no memory")

    service.model.engine.runner.run = fail  # type: ignore[method-assign]


def test_an_engine_that_fails_is_told_in_both_forms() -> None:
    async def asked() -> None:
        async with serving() as (client, service):
            failing(service)
            whole = await client.post(PATH, json=GOOD)
            assert (whole.status_code, whole.json()["error"]["code"]) == (500, "engine_error")
            streamed = await client.post(PATH, json={**GOOD, "stream": True})
            first, last, rest = streamed.text.split("\n\n")
            assert '"error":{' in first and "no memory" in first
            assert (last, rest) == ("data: [DONE]", "")
            assert "degarble_failed_steps_total" in (await client.get("/metrics")).text

    run(asked)


def test_a_deadline_ends_an_answer() -> None:
    async def asked() -> int:
        async with serving(limits=Limits(request_seconds=0.02)) as (client, _):
            return (await client.post(PATH, json={**GOOD, "max_tokens": 400, "ignore_eos": True})).status_code

    assert run(asked) == 504


@pytest.mark.parametrize("after", [0, 3])
def test_a_stream_that_nobody_reads_is_ended(after: int) -> None:
    async def left() -> None:
        async with serving() as (client, service):
            body = b'{"prompt": "abc", "max_tokens": 400, "ignore_eos": true, "stream": true}'
            sent = 0
            has_read = asyncio.Event()
            parts = [{"type": "http.request", "body": body, "more_body": False}]

            async def receive() -> dict[str, Any]:
                if parts:
                    return parts.pop()
                await has_read.wait()
                return {"type": "http.disconnect"}

            async def send(message: Any) -> None:
                nonlocal sent
                sent += message["type"] == "http.response.body"
                if sent >= after:
                    has_read.set()

            scope = {
                "type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "query_string": b"",
                "headers": [(b"content-type", b"application/json")], "root_path": "", "scheme": "http",
                "http_version": "1.1", "server": ("test", 80), "client": ("test", 1),
            }  # fmt: skip
            transport = client._transport
            assert isinstance(transport, httpx.ASGITransport)
            await transport.app(scope, receive, send)
            await until(lambda: is_free(service))
            assert sent < 400
            assert "degarble_disconnected_requests_total" in (await client.get("/metrics")).text

    run(left)
