"""A served model for tests, in this process: a golden checkpoint of two layers with SmolLM2's template."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import httpx

from degarble.evidence import Evidence, Settings
from degarble.target import open_target
from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.server.app import application
from degarble_engine.server.limits import Limits
from degarble_engine.server.served_model import ServedModel, open_served
from degarble_engine.server.service import Service
from degarble_engine.telemetry.request_record import Sink
from tests.conftest import unpacked_golden

Result = TypeVar("Result")
NAME = "tiny"
OPTIONS: dict[str, Any] = {"block_size": 4, "num_gpu_blocks": 160, "max_num_seqs": 8, "checks_integrity": True}


@cache
def opened() -> ServedModel:
    evidence = Evidence(open_target(unpacked_golden() / "base-bf16"), Settings())
    return open_served(evidence, NAME, dtype="fp32", options=EngineOptions(**OPTIONS))


def fresh_model(**options: Any) -> ServedModel:
    """The same weights under an engine of its own."""
    old = opened()
    engine = LLMEngine(old.engine.model, EngineOptions(**{**OPTIONS, **options}), eos_ids=old.engine.eos_ids)
    return replace(old, engine=engine)


def is_free(service: Service) -> bool:
    """Whether nothing is held any more."""
    engine = service.model.engine
    is_idle = not engine.requests and not service.loop.num_open
    return is_idle and engine.manager.pool.num_free == engine.options.num_gpu_blocks - 1


async def until(condition: Callable[[], bool]) -> None:
    """Wait for the engine's thread."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)


@asynccontextmanager
async def serving(
    keys: tuple[str, ...] = (), limits: Limits | None = None, sinks: Sequence[Sink] = (), **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Service]]:
    """A client of a running server; afterwards no block may be missing."""
    service = Service(fresh_model(**options), limits or Limits(), sinks)
    app = application(service, keys)
    transport = httpx.ASGITransport(app=app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test") as client,
    ):
        yield client, service
        await until(lambda: is_free(service) or service.loop.failure is not None)
    if service.loop.failure is None:
        service.model.engine.manager.check_integrity()


def run(test: Callable[[], Awaitable[Result]]) -> Result:
    """One asyncio loop for one test."""

    async def timed() -> Result:
        async with asyncio.timeout(60):
            return await test()

    return asyncio.run(timed())


def events(text: str) -> list[dict[str, Any]]:
    """Of a stream that ends with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]
