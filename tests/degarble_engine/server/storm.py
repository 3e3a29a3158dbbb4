"""Many streams of OpenAI's client that come and go at random, on a server with a socket; and what must be true after it.

Every stream, also one that was cut off, must be the beginning of what its request gives alone: on an engine of its own,
without a prefix cache, one request at a time.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import openai

from degarble_engine.engine.llm_engine import EngineOptions, LLMEngine
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.server import process
from degarble_engine.server.app import application
from degarble_engine.server.limits import Limits
from degarble_engine.server.served_model import ServedModel
from degarble_engine.server.service import Service
from degarble_engine.telemetry.resident_memory import resident_bytes

CUT_SHARE = 0.35
IDLE_SECONDS = 60


class StreamPlan(msgspec.Struct, frozen=True):
    """What one stream asks for, made from its number alone."""

    number: int
    prompt_ids: tuple[int, ...]
    max_tokens: int
    temperature: float
    cut_after: int | None
    """Chunks; None: to its end."""


class StormResult(msgspec.Struct, kw_only=True):
    """What came of it."""

    seconds: float = 0.0
    num_completed: int = 0
    num_cut: int = 0
    num_failed: int = 0
    num_tokens: int = 0
    num_leaked_blocks: int = -1
    num_failed_steps: int = 0
    num_steps: int = 0
    num_preemptions: int = 0
    failures: list[str] = []
    num_compared: int = 0
    mixed: list[int] = []
    """Numbers of streams that differ from their solo run."""
    memory_mib: list[int] = []
    """Of the process, some two hundred times over the storm."""


def plan_of(number: int, vocab_size: int, *, longest_prompt: int, longest_answer: int) -> StreamPlan:
    """A third share one of a few beginnings, so that the prefix cache is hit."""
    rng = random.Random(number)
    ids = [rng.randrange(20, vocab_size) for _ in range(rng.randrange(2, longest_prompt))]
    if rng.random() < 0.33:
        shared = random.Random(f"shared {rng.randrange(4)}")
        ids = [shared.randrange(20, vocab_size) for _ in range(longest_prompt // 2)] + ids[: longest_prompt // 2]
    max_tokens = rng.randrange(1, longest_answer)
    cut = rng.randrange(0, max_tokens) if rng.random() < CUT_SHARE else None
    return StreamPlan(number, tuple(ids), max_tokens, rng.choice([0.0, 1.0]), cut)


async def _one(client: Any, model: str, plan: StreamPlan, got: dict[int, list[int]], result: StormResult) -> None:
    ids: list[int] = []
    try:
        stream = await client.completions.create(
            model=model, prompt=list(plan.prompt_ids), max_tokens=plan.max_tokens, temperature=plan.temperature,
            seed=plan.number, stream=True, extra_body={"ignore_eos": True, "return_token_ids": True},
        )  # fmt: skip
        async with stream:
            if plan.cut_after != 0:
                async for chunk in stream:
                    ids += chunk.choices[0].token_ids
                    if plan.cut_after is not None and len(ids) >= plan.cut_after:
                        break
    except openai.APIError as error:
        result.num_failed += 1
        result.failures.append(f"{type(error).__name__}: {error}"[:200])
        return
    got[plan.number] = ids
    result.num_tokens += len(ids)
    if plan.cut_after is None:
        result.num_completed += 1
        assert len(ids) == plan.max_tokens, f"stream {plan.number} has {len(ids)} of {plan.max_tokens} tokens"
    else:
        result.num_cut += 1


async def _storm(
    address: str, model: str, make: Callable[[int], StreamPlan], got: dict[int, list[int]], result: StormResult,
    *, seconds: float, num_streams: int,
) -> None:  # fmt: skip
    running: set[asyncio.Task[None]] = set()
    number, start = 0, time.monotonic()
    next_sample = 0.0
    async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=600) as client:
        while (now := time.monotonic() - start) < seconds:
            if now >= next_sample:
                result.memory_mib.append(int(resident_bytes()) >> 20)
                next_sample = now + seconds / 200
            while len(running) < num_streams:
                running.add(asyncio.create_task(_one(client, model, make(number), got, result)))
                number += 1
            done, running = await asyncio.wait(running, timeout=0.5, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        if running:
            await asyncio.wait(running)
            for task in running:
                task.result()
    result.seconds = time.monotonic() - start


def _solo(
    model: ServedModel, plans: Sequence[StreamPlan], got: dict[int, list[int]], result: StormResult, end: float
) -> None:
    """Compare until a moment of the monotonic clock."""
    options = msgspec.structs.replace(model.engine.options, enable_prefix_caching=False, checks_integrity=False)
    engine = LLMEngine(model.engine.model, options, eos_ids=model.engine.eos_ids)
    for plan in plans:
        if time.monotonic() > end:
            break
        num = len(got[plan.number])
        if not num:
            continue
        params = SamplingParams(temperature=plan.temperature, seed=plan.number, max_tokens=num, ignore_eos=True)
        (request,) = engine.generate([plan.prompt_ids], params)
        result.num_compared += 1
        if [one.token_id for one in request.outputs] != got[plan.number]:
            result.mixed.append(plan.number)


def storm(
    model: ServedModel, *, seconds: float, num_streams: int, longest_prompt: int, longest_answer: int,
    compare_seconds: float, **options: Any,
) -> StormResult:  # fmt: skip
    """Serve, send, cut, and compare."""
    vocab_size = model.engine.model.vocab_size
    settings = EngineOptions(max_num_seqs=num_streams, checks_integrity=True, **options)
    served = replace(model, engine=LLMEngine(model.engine.model, settings, eos_ids=model.engine.eos_ids))
    service = Service(served, Limits(request_seconds=600))
    made = process.server(
        application(service), service.loop, host="127.0.0.1", port=0, header_seconds=60, drain_seconds=60
    )
    result = StormResult(failures=[], mixed=[], memory_mib=[])
    got: dict[int, list[int]] = {}

    def make(number: int) -> StreamPlan:
        return plan_of(number, vocab_size, longest_prompt=longest_prompt, longest_answer=longest_answer)

    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        while not made.started:
            time.sleep(0.01)
        address = f"http://127.0.0.1:{made.servers[0].sockets[0].getsockname()[1]}"
        asyncio.run(
            _storm(address, served.name, make, got, result, seconds=seconds, num_streams=num_streams)
        )  # fmt: skip
        end = time.monotonic() + IDLE_SECONDS
        while (served.engine.requests or service.loop.num_open) and time.monotonic() < end:
            time.sleep(0.05)
    finally:
        made.should_exit = True
        thread.join(timeout=120)
    engine = served.engine
    engine.manager.check_integrity()
    result.num_leaked_blocks = settings.num_gpu_blocks - 1 - engine.manager.pool.num_free
    result.num_failed_steps, result.num_steps = service.loop.num_failed_steps, engine.num_steps
    result.num_preemptions = engine.scheduler.num_preemptions
    print(f"before the comparison: {result}", flush=True)  # ten minutes are too long to lose
    numbers = sorted(got)
    random.Random(1).shuffle(numbers)
    _solo(served, [make(number) for number in numbers], got, result, time.monotonic() + compare_seconds)
    return result


def require_calm(result: StormResult) -> None:
    """What must be true after it."""
    assert result.num_leaked_blocks == 0 and result.num_failed_steps == 0
    assert result.num_failed == 0, result.failures[:3]
    assert result.mixed == [] and result.num_compared > 0
    assert result.num_completed > 0 and result.num_cut > 0
    half = len(result.memory_mib) // 2
    assert max(result.memory_mib) <= max(result.memory_mib[:half]) * 1.1, "memory grows"
