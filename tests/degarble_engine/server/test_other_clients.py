"""LangChain and LiteLLM understand the server. Needs the extra `slow`; run with `make test-slow`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import opened
from tests.degarble_engine.server.test_process import listening

pytestmark = pytest.mark.slow
ASKED = "Where does the road end?"
SCHEMA: dict[str, Any] = {
    "title": "answer",
    "type": "object",
    "properties": {"ends": {"type": "boolean"}, "kind": {"enum": ["road", "river"]}},
    "required": ["ends", "kind"],
    "additionalProperties": False,
}


def test_langchain() -> None:
    pytest.importorskip("langchain_openai", reason=f"{NOT_HERE}langchain-openai")
    from langchain_openai import ChatOpenAI

    with listening(num_gpu_blocks=500) as (_, address, _service):
        chat = ChatOpenAI(
            model="tiny", base_url=f"{address}/v1", api_key="none", temperature=0, max_tokens=12, max_retries=0,
            stream_usage=True,
        )  # fmt: skip
        whole = chat.invoke(ASKED)
        assert whole.response_metadata["finish_reason"] in ("length", "stop")
        assert whole.usage_metadata["output_tokens"] <= 12
        chunks = list(chat.stream(ASKED))
        assert "".join(chunk.content for chunk in chunks) == whole.content
        streamed = sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks)
        assert streamed == whole.usage_metadata["output_tokens"]
        assert [one.content for one in chat.batch([ASKED, ASKED])] == [whole.content] * 2
        pieces = opened().tokenizer.table.pieces
        blank = {str(one): -100 for one, piece in enumerate(pieces) if piece and not piece.strip()}
        second = ChatOpenAI(
            model="tiny", base_url=f"{address}/v1", api_key="none", temperature=0, max_tokens=200, logit_bias=blank
        )  # fmt: skip
        found = second.with_structured_output(SCHEMA, method="json_schema").invoke(ASKED)
        assert set(found) == {"ends", "kind"} and found["kind"] in ("road", "river")


def test_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it asks the network when it is imported
    litellm = pytest.importorskip("litellm", reason=f"{NOT_HERE}litellm")
    with listening(num_gpu_blocks=500) as (_, address, _service):
        asked: dict[str, Any] = {
            "model": "openai/tiny", "api_base": f"{address}/v1", "api_key": "none", "temperature": 0, "max_tokens": 12,
            "messages": [{"role": "user", "content": ASKED}], "num_retries": 0,
        }  # fmt: skip
        whole = litellm.completion(**asked, logprobs=True, top_logprobs=2)
        assert whole.choices[0].finish_reason in ("length", "stop") and whole.usage.completion_tokens <= 12
        assert len(whole.choices[0].logprobs.content) == whole.usage.completion_tokens
        chunks = list(litellm.completion(**asked, stream=True, stream_options={"include_usage": True}))
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == whole.choices[0].message.content
        with pytest.raises(litellm.NotFoundError):
            litellm.completion(**{**asked, "model": "openai/other"})
        with pytest.raises(litellm.BadRequestError):
            litellm.completion(**{**asked, "temperature": 5})
