"""The page at `/` and what it shows."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx

from degarble_engine.server.live_state import CACHED, HELD, RESERVED, SHARED
from tests.degarble_engine.server.served import run, serving, until

BODY = {"prompt": [7] * 40, "max_tokens": 60, "ignore_eos": True, "temperature": 0}


def test_the_page_loads_nothing_from_elsewhere() -> None:
    async def files() -> dict[str, httpx.Response]:
        async with serving(keys=("secret",)) as (client, _):
            return {path: await client.get(path) for path in ("/", "/page.css", "/page.js")}

    found = run(files)
    for response in found.values():
        assert response.status_code == 200
        assert "default-src 'none'" in response.headers["content-security-policy"]
        assert response.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"https?:|//[a-z]|@import|url\(|<script>|\son[a-z]+=|style=|innerHTML", response.text)
    names = re.findall(r'(?:src|href)="([^"]*)"', found["/"].text)
    assert names == ["data:,", "page.css", "page.js"]
    assert found["/page.js"].headers["content-type"].startswith("text/javascript")


def test_state_is_that_of_the_engine() -> None:
    async def states() -> tuple[int, dict[str, Any], dict[str, Any], dict[str, Any]]:
        async with serving(keys=("secret",), num_gpu_blocks=100) as (client, service):
            key = {"authorization": "Bearer secret"}
            refused = (await client.get("/state")).status_code
            idle = (await client.get("/state", headers=key)).json()
            first = asyncio.create_task(client.post("/v1/completions", json=BODY, headers=key))
            await until(lambda: bool(service.model.engine.requests))
            await until(lambda: any(one.num_outputs > 4 for one in list(service.model.engine.requests.values())))
            second = asyncio.create_task(client.post("/v1/completions", json=BODY, headers=key))
            await until(lambda: sum(one.num_outputs > 4 for one in list(service.model.engine.requests.values())) == 2)
            busy = (await client.get("/state", headers=key)).json()
            await asyncio.gather(first, second)
            return refused, idle, busy, (await client.get("/state", headers=key)).json()

    refused, idle, busy, done = run(states)
    assert refused == 401 and idle["requests"] == [] and idle["blocks"]["map"][0] == RESERVED
    assert [one["state"] for one in busy["requests"]] == ["running", "running"]
    shown, requests = busy["blocks"]["map"], busy["requests"]
    held = {block for one in requests for block in one["blocks"]}
    assert held == {at for at, letter in enumerate(shown) if letter in (HELD, SHARED)}
    both = set(requests[0]["blocks"]) & set(requests[1]["blocks"])
    assert both and both == {at for at, letter in enumerate(shown) if letter == SHARED}, "the prompt's prefix"
    assert busy["blocks"]["free"] == len(shown) - 1 - len(held) and requests[1]["cached_tokens"] > 0
    assert done["requests"] == [] and HELD not in done["blocks"]["map"] and CACHED in done["blocks"]["map"]
    told = {(one["name"], one["of"]): one["value"] for one in done["counters"]}
    assert told["vllm:request_success_total", "length"] == 2


def test_a_question_to_a_stopped_engine_has_an_answer() -> None:
    async def asked() -> tuple[int, str]:
        async with serving() as (client, service):

            def broken(engine: object) -> None:
                raise ValueError("a bug")

            try:
                await service.loop.ask(broken)
            except ValueError as error:
                assert str(error) == "a bug"
            assert (await client.get("/state")).status_code == 200
            await service.loop.close()
            response = await client.get("/state")
            return response.status_code, response.json()["error"]["code"]

    assert run(asked) == (503, "not_ready")
