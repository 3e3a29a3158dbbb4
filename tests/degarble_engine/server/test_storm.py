"""Many streams that come and go at random: no block is lost, and every answer is what it would be alone."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import httpx
import pytest

from tests.degarble_engine.server.served import is_free, serving, until

PATH = "/v1/completions"
SECONDS = 30


def body_of(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    return {
        "prompt": [rng.randrange(20, 512) for _ in range(rng.randrange(2, 40))], "ignore_eos": True,
        "max_tokens": rng.randrange(1, 40), "temperature": rng.choice([0, 1]), "seed": number, "return_token_ids": True,
    }  # fmt: skip


@pytest.mark.slow
def test_a_storm_of_streams() -> None:
    answers: dict[int, list[int]] = {}
    num_cut = 0

    async def one(client: httpx.AsyncClient, number: int, rng: random.Random) -> None:
        nonlocal num_cut
        task = asyncio.create_task(client.post(PATH, json=body_of(number)))
        if rng.random() < 0.4:
            await asyncio.sleep(rng.random())
            num_cut += task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            answers[number] = task.result().json()["choices"][0]["token_ids"]

    async def storm() -> None:
        rng = random.Random(1)
        async with serving(max_num_seqs=64, num_gpu_blocks=300) as (client, service):
            running: set[asyncio.Task[None]] = set()
            loop = asyncio.get_running_loop()
            end, number = loop.time() + SECONDS, 0
            while loop.time() < end:
                while len(running) < 64:
                    running.add(asyncio.create_task(one(client, number, rng)))
                    number += 1
                running = (await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED))[1]
            await asyncio.wait(running)
            await until(lambda: is_free(service))
            assert service.loop.num_failed_steps == 0 and service.loop.failure is None
            for chosen in rng.sample(sorted(answers), 40):
                alone = await client.post(PATH, json=body_of(chosen))
                assert alone.json()["choices"][0]["token_ids"] == answers[chosen]

    async def bounded() -> None:
        async with asyncio.timeout(300):
            await storm()

    asyncio.run(bounded())
    assert len(answers) > 40 and num_cut > 20
    print(f"{len(answers)} answers, {num_cut} cut off")
