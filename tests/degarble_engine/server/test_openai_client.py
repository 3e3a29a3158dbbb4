"""OpenAI's own client understands all of it: answers, streams, log probabilities, errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import run, serving

openai = pytest.importorskip("openai", reason=f"{NOT_HERE}openai")

MESSAGES = [{"role": "user", "content": "Where does the road end?"}]


def clients(client: Any, key: str = "secret") -> Any:
    return openai.AsyncOpenAI(base_url="http://test/v1", api_key=key, http_client=client, max_retries=0)


def test_chats_completions_and_models() -> None:
    async def talk() -> None:
        async with serving(keys=("secret",)) as (http, _):
            api = clients(http)
            assert [model.id async for model in api.models.list()] == ["tiny"]
            asked: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "temperature": 0, "max_tokens": 12}
            whole = await api.chat.completions.create(**asked, logprobs=True, top_logprobs=2, n=2)
            assert [choice.index for choice in whole.choices] == [0, 1]
            assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens // 2
            stream = await api.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True})
            chunks = [chunk async for chunk in stream]
            assert chunks[0].choices[0].delta.role == "assistant"
            text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
            assert text == whole.choices[0].message.content
            assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens // 2
            old = await api.completions.create(
                model="tiny", prompt=["a", "b"], max_tokens=3, extra_body={"return_token_ids": True, "ignore_eos": True}
            )
            assert [len(choice.token_ids) for choice in old.choices] == [3, 3]

    run(talk)


def test_errors_are_its_own() -> None:
    async def fail() -> None:
        async with serving(keys=("secret",)) as (http, service):
            with pytest.raises(openai.AuthenticationError):
                await clients(http, "wrong").models.list()
            api = clients(http)
            asked: dict[str, Any] = {"model": "tiny", "messages": MESSAGES, "max_tokens": 4}
            with pytest.raises(openai.NotFoundError):
                await api.chat.completions.create(**{**asked, "model": "other"})
            with pytest.raises(openai.BadRequestError) as caught:
                await api.chat.completions.create(**asked, temperature=5)
            assert caught.value.param == "temperature"

            def broken(parts: Any) -> Any:
                raise RuntimeError("no memory")

            service.model.engine.runner.run = broken  # type: ignore[method-assign]
            with pytest.raises(openai.InternalServerError):
                await api.chat.completions.create(**asked)
            with pytest.raises(openai.APIError, match="no memory"):
                _ = [chunk async for chunk in await api.chat.completions.create(**asked, stream=True)]

    run(fail)
