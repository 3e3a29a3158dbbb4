"""/v1/completions and what both endpoints share: streams, stops, log probabilities, usage, answers of their own."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from degarble_engine.engine.sampling_params import SamplingParams
from degarble_engine.server.served_model import ServedModel
from tests.degarble_engine.server.served import events, is_free, opened, run, serving, until

PATH = "/v1/completions"
GREEDY: dict[str, Any] = {"prompt": "once upon a time", "temperature": 0, "max_tokens": 24, "ignore_eos": True}


def posted(*bodies: dict[str, Any], path: str = PATH, **options: Any) -> list[httpx.Response]:
    """Answers to requests that are sent together."""

    async def post() -> list[httpx.Response]:
        async with serving(**options) as (client, _):
            return list(await asyncio.gather(*(client.post(path, json=body) for body in bodies)))

    return run(post)


def choice_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    (choice,) = response.json()["choices"]
    return dict(choice)


def decoded(model: ServedModel, ids: list[int]) -> str:
    return model.hiding.decode(ids)


def test_text_is_that_of_its_ids_and_usage_counts_them() -> None:
    (response,) = posted({**GREEDY, "return_token_ids": True, "model": "tiny"})
    choice, usage = choice_of(response), response.json()["usage"]
    assert choice["text"] == decoded(opened(), choice["token_ids"])
    assert choice["prompt_token_ids"] == opened().prompter.encode("once upon a time")
    assert (choice["finish_reason"], usage["completion_tokens"]) == ("length", 24)
    assert usage["prompt_tokens"] == len(choice["prompt_token_ids"])
    (engine,) = opened().engine.generate(
        [choice["prompt_token_ids"]], SamplingParams(temperature=0.0, max_tokens=24, ignore_eos=True)
    )
    assert choice["token_ids"] == [one.token_id for one in engine.outputs]


def test_a_stream_joins_to_the_whole_answer() -> None:
    asked = {**GREEDY, "return_token_ids": True, "logprobs": 2}
    whole, streamed = posted(asked, {**asked, "stream": True, "stream_options": {"include_usage": True}})
    chunks = events(streamed.text)
    wanted = choice_of(whole)
    pieces = [choice for chunk in chunks for choice in chunk["choices"]]
    assert "".join(piece["text"] for piece in pieces) == wanted["text"]
    assert [one for piece in pieces for one in piece["token_ids"]] == wanted["token_ids"]
    for key, values in wanted["logprobs"].items():
        assert [one for piece in pieces for one in piece["logprobs"][key]] == values
    assert [piece["finish_reason"] for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 24
    assert all("usage" not in chunk for chunk in chunks[:-1])
    assert streamed.headers["content-type"].startswith("text/event-stream")


@pytest.mark.parametrize("is_stream", [False, True])
def test_text_ends_before_the_first_stop_string(is_stream: bool) -> None:
    full = choice_of(posted(GREEDY)[0])["text"]
    stops = [full[5:9], full[12:15], "never in it"]
    first = min(full.find(stop) + len(stop) for stop in stops[:2])
    wanted = next(full[: first - len(stop)] for stop in stops if full[:first].endswith(stop))
    (response,) = posted({**GREEDY, "stop": stops, "stream": is_stream})
    choices = (
        [one for event in events(response.text) for one in event["choices"]] if is_stream else [choice_of(response)]
    )
    assert "".join(one["text"] for one in choices) == wanted
    assert choices[-1]["finish_reason"] == "stop" and choices[-1]["stop_reason"] in stops


def test_what_might_have_been_a_stop_string_is_not_lost() -> None:
    full = choice_of(posted(GREEDY)[0])["text"]
    (response,) = posted({**GREEDY, "stop": full[-4:] + "?", "stream": True})
    assert "".join(one["text"] for event in events(response.text) for one in event["choices"]) == full


def test_a_stop_token_is_no_part_of_the_text() -> None:
    asked = {**GREEDY, "temperature": 1, "seed": 1, "return_token_ids": True}
    ids = choice_of(posted(asked)[0])["token_ids"]
    end = next(at for at in range(4, 24) if ids[at] not in ids[:at])
    choice = choice_of(posted({**asked, "stop_token_ids": [ids[end]]})[0])
    assert choice["token_ids"] == ids[: end + 1]
    assert choice["text"] == decoded(opened(), ids[:end])
    assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", ids[end])


def test_log_probabilities_belong_to_their_tokens() -> None:
    choice = choice_of(posted({**GREEDY, "logprobs": 3, "return_token_ids": True})[0])
    found = choice["logprobs"]
    for token, logprob, top, offset in zip(*(found[key] for key in ("tokens", "token_logprobs", "top_logprobs")),
                                           found["text_offset"], strict=True):  # fmt: skip
        assert len(top) == 3 and top[token] == logprob == max(top.values())  # greedy
        assert 0 <= offset <= len(choice["text"])
    assert found["text_offset"][0] == 0


def test_several_prompts_and_answers_have_numbers() -> None:
    body = {"prompt": ["abc", "once upon"], "n": 2, "seed": 5, "temperature": 1, "max_tokens": 12, "ignore_eos": True}
    response, again = posted(body, body)
    choices = response.json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    assert choices[0]["text"] != choices[1]["text"] and choices[2]["text"] != choices[3]["text"]
    assert [one["text"] for one in again.json()["choices"]] == [one["text"] for one in choices]
    (one,) = posted({**body, "prompt": "once upon", "n": 1})
    assert choice_of(one)["text"] == choices[2]["text"]
    encode = opened().prompter.encode
    assert response.json()["usage"]["prompt_tokens"] == len(encode("abc")) + len(encode("once upon"))


def test_a_bias_decides() -> None:
    choice = choice_of(posted({**GREEDY, "logit_bias": {"77": 100}, "return_token_ids": True})[0])
    assert set(choice["token_ids"]) == {77}


def test_ids_are_a_prompt_too() -> None:
    ids = opened().prompter.encode("once upon a time")
    text, numbers, nested = posted(GREEDY, {**GREEDY, "prompt": ids}, {**GREEDY, "prompt": [ids]})
    assert choice_of(text) == choice_of(numbers) == choice_of(nested)


def test_a_prefix_is_counted_once_it_is_cached() -> None:
    async def twice() -> list[int]:
        async with serving() as (client, _):
            body = {**GREEDY, "prompt": list(range(50, 91))}
            answers = [await client.post(PATH, json=body) for _ in range(2)]
            salted = await client.post(PATH, json={**body, "cache_salt": "another"})
            details = [one.json()["usage"]["prompt_tokens_details"] for one in (*answers, salted)]
            return [one["cached_tokens"] for one in details]

    assert run(twice) == [0, 40, 0]


def test_streams_that_are_cut_off_leave_nothing_and_harm_nobody() -> None:
    async def storm() -> tuple[list[str], list[str]]:
        bodies = [{**GREEDY, "prompt": [5 + one, 9, 30 + one]} for one in range(9)]
        async with serving(max_num_seqs=4) as (client, service):
            alone = [choice_of(await client.post(PATH, json=body))["text"] for body in bodies[::3]]
            tasks = [asyncio.create_task(client.post(PATH, json=body)) for body in bodies]
            await until(lambda: len(service.model.engine.scheduler.running) == 4)
            for at, task in enumerate(tasks):
                if at % 3:
                    task.cancel()
            together = [choice_of(await task)["text"] for task in tasks[::3]]
            await until(lambda: is_free(service))
            assert service.loop.num_open == 0
            return alone, together

    alone, together = run(storm)
    assert alone == together
