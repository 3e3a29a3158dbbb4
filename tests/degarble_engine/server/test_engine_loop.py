"""The thread that owns the engine: what it takes, what it gives back, and what a failure takes with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from degarble_engine.engine.request import FinishReason
from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.server.engine_loop import EngineLoop, EngineStopped, Job, QueueFull, Ticket
from tests.degarble_engine.server.served import fresh_model, run, until

GREEDY = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)
LONG = SamplingParams(temperature=0.0, max_tokens=400, ignore_eos=True)
PROMPTS = ([5, 6, 7, 8, 9], [40, 41, 42], [100, 7, 9, 11, 300, 2, 2])


async def ids_of(ticket: Ticket, num: int = 1) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(num)]
    num_open = num
    while num_open:
        update = await ticket.updates.get()
        found[update.index] += [token.token_id for token in update.new]
        num_open -= update.finish_reason is not None
    return found


def num_free(loop: EngineLoop) -> int:
    return loop.engine.manager.pool.num_free


def test_tokens_are_those_of_the_engine_alone() -> None:
    alone = [[one.token_id for one in found.outputs] for found in fresh_model().engine.generate(PROMPTS, GREEDY)]

    async def served() -> list[list[int]]:
        loop = EngineLoop(fresh_model().engine)
        loop.start()
        found = await ids_of(loop.submit([Job(prompt, GREEDY) for prompt in PROMPTS]), len(PROMPTS))
        await loop.close()
        return found

    assert run(served) == alone


def test_a_full_queue_takes_none_of_a_request() -> None:
    async def full() -> None:
        loop = EngineLoop(fresh_model(max_num_seqs=2).engine, max_queued=1)
        loop.start()
        ticket = loop.submit([Job(PROMPTS[0], LONG)] * 2)
        with pytest.raises(QueueFull, match="more would be over 3"):
            loop.submit([Job(PROMPTS[1], GREEDY)] * 2)
        assert loop.num_open == 2
        ticket.close()
        await ids_of(loop.submit([Job(PROMPTS[1], GREEDY)] * 2), 2)
        await loop.close()

    run(full)


def test_an_abort_gives_blocks_back_and_leaves_others_alone() -> None:
    async def aborted() -> list[list[int]]:
        loop = EngineLoop(fresh_model().engine)
        loop.start()
        long, short = loop.submit([Job(PROMPTS[0], LONG)]), loop.submit([Job(PROMPTS[1], GREEDY)])
        await long.updates.get()
        long.close()
        found = await ids_of(short)
        await until(lambda: num_free(loop) == 159)
        assert not loop.num_open
        await loop.close()
        return found

    (alone,) = fresh_model().engine.generate([PROMPTS[1]], GREEDY)
    assert run(aborted) == [[one.token_id for one in alone.outputs]]


def broken_once(loop: EngineLoop, after: int) -> None:
    """The forward pass fails in one step."""
    true_run, calls = loop.engine.runner.run, 0

    def run_or_raise(parts: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == after:
            raise RuntimeError("out of luck")
        return true_run(parts)

    loop.engine.runner.run = run_or_raise  # type: ignore[method-assign]


def test_a_step_that_raises_ends_its_own_requests_only() -> None:
    async def failing() -> list[list[int]]:
        loop = EngineLoop(fresh_model(max_num_seqs=1).engine)
        broken_once(loop, after=3)
        loop.start()
        first, second = loop.submit([Job(PROMPTS[0], LONG)]), loop.submit([Job(PROMPTS[1], GREEDY)])
        num_tokens = 0
        while (update := await first.updates.get()).finish_reason is None:
            num_tokens += len(update.new)
        assert (update.finish_reason, update.error) == (FinishReason.ERROR, "RuntimeError: out of luck")
        assert num_tokens == 2
        found = await ids_of(second)
        await until(lambda: num_free(loop) == 159)
        assert (loop.num_failed_steps, loop.failure) == (1, None)
        await loop.close()
        return found

    (alone,) = fresh_model().engine.generate([PROMPTS[1]], GREEDY)
    assert run(failing) == [[one.token_id for one in alone.outputs]]


def test_a_request_that_failed_leaves_nothing_in_the_prefix_cache() -> None:
    async def failing() -> None:
        loop = EngineLoop(fresh_model().engine)
        broken_once(loop, after=1)
        loop.start()
        prompt = list(range(3, 40))
        await loop.submit([Job(prompt, GREEDY)]).updates.get()
        update = await loop.submit([Job(prompt, GREEDY)]).updates.get()
        assert update.num_cached == 0
        await loop.close()

    run(failing)


def test_an_engine_whose_state_is_broken_is_given_up() -> None:
    async def failing() -> None:
        loop = EngineLoop(fresh_model(max_num_seqs=1, checks_integrity=False).engine)
        broken_once(loop, after=2)

        def unsound() -> None:
            raise ValueError("a block is lost")

        loop.engine.manager.check_integrity = unsound  # type: ignore[method-assign]
        loop.start()
        tickets = [loop.submit([Job(prompt, LONG)]) for prompt in PROMPTS]
        for ticket in tickets:
            while (update := await ticket.updates.get()).finish_reason is None:
                pass
            assert "a block is lost" in str(update.error)
        assert not loop.is_ready
        with pytest.raises(EngineStopped, match="given up"):
            loop.submit([Job(PROMPTS[0], GREEDY)])
        await loop.close()

    run(failing)


def test_the_end_ends_what_runs() -> None:
    async def closing() -> None:
        loop = EngineLoop(fresh_model().engine)
        loop.start()
        ticket = loop.submit([Job(PROMPTS[0], LONG)])
        await ticket.updates.get()
        await loop.close()
        while (update := ticket.updates.get_nowait()).finish_reason is None:
            await asyncio.sleep(0)
        assert update.finish_reason is FinishReason.ABORT
        assert num_free(loop) == 159
        with pytest.raises(EngineStopped):
            loop.submit([Job(PROMPTS[0], GREEDY)])

    run(closing)
