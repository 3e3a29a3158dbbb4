"""Sends the plan: each request at its arrival, or when one in flight has ended, if too many are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter

import httpx
import msgspec

from degarble.errors import TargetError
from degarble_engine.bench.settings import LoadSettings
from degarble_engine.bench.timed_request import Timed, send
from degarble_engine.bench.workload import Planned, plan
from degarble_engine.endpoint.client import Endpoint, EndpointFailed, key_of_environment


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    """What happened."""

    settings: LoadSettings
    model: str
    requests: tuple[Timed, ...]
    seconds: float
    """From the first request sent to the last end."""


async def run_load(
    settings: LoadSettings,
    on_end: Callable[[Timed], None] = lambda timed: None,
    transport: httpx.AsyncBaseTransport | None = None,
) -> LoadRun:
    """Raises TargetError for an endpoint that cannot be measured at all."""
    client = Endpoint(
        settings.url,
        api_key=key_of_environment(),
        seconds=settings.timeout_seconds,
        most=settings.max_concurrency,
        transport=transport,
    )
    async with client.opened() as endpoint:
        model = await _model(endpoint, settings)
        await _warm_up(endpoint, settings, model)
        timed = await _send_all(endpoint, settings, model, on_end)
    seconds = max(one.ended for one in timed) - min(one.sent for one in timed)
    return LoadRun(settings=settings, model=model, requests=tuple(timed), seconds=seconds)


async def _model(endpoint: Endpoint, settings: LoadSettings) -> str:
    if settings.model is not None:
        return settings.model
    try:
        served = await endpoint.models()
    except EndpointFailed as error:
        raise TargetError(f"{settings.url}: {error}") from None
    if not served:
        raise TargetError(f"{settings.url}: serves no model")
    return served[0]


async def _warm_up(endpoint: Endpoint, settings: LoadSettings, model: str) -> None:
    """Requests that are not counted; the first failure ends all, as nothing would be measured."""
    plans = plan(msgspec.structs.replace(settings, num_requests=max(1, settings.num_warm_up), seed=settings.seed + 1))
    for planned in plans[: settings.num_warm_up]:
        timed = await send(endpoint, settings, model, planned, perf_counter())
        if timed.failure is not None:
            raise TargetError(f"{settings.url}: the first request failed: {timed.failure}: {timed.message}")


async def _send_all(
    endpoint: Endpoint, settings: LoadSettings, model: str, on_end: Callable[[Timed], None]
) -> list[Timed]:
    places = asyncio.Semaphore(settings.max_concurrency)
    start = perf_counter()

    async def one(planned: Planned) -> Timed:
        try:
            timed = await send(endpoint, settings, model, planned, start)
        finally:
            places.release()
        on_end(timed)
        return timed

    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[Timed]] = []
        for planned in plan(settings):
            await asyncio.sleep(max(0.0, start + planned.arrival - perf_counter()))
            await places.acquire()
            tasks.append(group.create_task(one(planned)))
    return [task.result() for task in tasks]
