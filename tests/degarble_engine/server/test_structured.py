"""Answers that must have a form: what a random model says is JSON of the schema all the same."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest

from degarble_engine.server.structured import Form
from tests.conftest import NOT_HERE
from tests.degarble_engine.server.served import events, opened, run, serving
from tests.degarble_engine.server.test_completions import choice_of, posted

openai = pytest.importorskip("openai", reason=f"{NOT_HERE}openai")
pytest.importorskip("llguidance", reason=f"{NOT_HERE}llguidance")

MESSAGES = [{"role": "user", "content": "Where does the road end?"}]
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "kind": {"enum": ["road", "<|im_end|>"]},
        "ends": {"type": "boolean"},
        "steps": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 3},
    },
    "required": ["name", "kind", "ends", "steps"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "road", "schema": SCHEMA, "strict": True}}


def test_openai_s_client_gets_json_of_its_schema() -> None:
    async def talk() -> list[str]:
        async with serving(num_gpu_blocks=300) as (http, _):
            api = openai.AsyncOpenAI(base_url="http://test/v1", api_key="none", http_client=http, max_retries=0)
            blank = {
                str(one): -100
                for one, piece in enumerate(opened().tokenizer.table.pieces)
                if piece and not piece.strip()
            }
            asked: dict[str, Any] = {
                "model": "tiny",
                "messages": MESSAGES,
                "response_format": FORMAT,
                "logit_bias": blank,
            }
            whole = await api.chat.completions.create(**asked, temperature=1, seed=3, n=3, max_tokens=120)
            assert {choice.finish_reason for choice in whole.choices} == {"stop"}
            greedy = await api.chat.completions.create(**asked, temperature=0, max_tokens=120)
            stream = await api.chat.completions.create(**asked, temperature=0, max_tokens=120, stream=True)
            pieces = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
            assert "".join(pieces) == greedy.choices[0].message.content
            return [choice.message.content for choice in (*whole.choices, *greedy.choices)]

    texts = run(talk)
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(texts)) > 1


def test_the_forms_of_vllm_and_what_a_log_probability_is() -> None:
    asked: dict[str, Any] = {"prompt": "once", "max_tokens": 200, "temperature": 1, "seed": 5, "logprobs": 1}
    answers = posted(
        {**asked, "guided_regex": r"[ab]{3}-(north|südlich|客)"},
        {**asked, "guided_choice": ['say "no"\n', "ja"]},
        {**asked, "structured_outputs": {"json": json.dumps({"type": "integer", "minimum": 10, "maximum": 99})}},
        {**asked, "guided_json": {"const": "<|im_end|>"}},
        {**asked, "response_format": {"type": "text"}, "max_tokens": 3},
        {**asked, "response_format": {"type": "json_object"}, "max_tokens": 40},
        path=COMPLETIONS,
    )
    texts = [choice_of(answer)["text"] for answer in answers]
    assert re.fullmatch(r"[ab]{3}-(north|südlich|客)", texts[0])
    assert texts[1] in ('say "no"\n', "ja")
    assert 10 <= int(texts[2]) <= 99 and texts[3] == '"<|im_end|>"' and texts[5].lstrip()[0] == "{"
    logprobs = choice_of(answers[3])["logprobs"]["token_logprobs"]
    assert all(-40 < one < 0 for one in logprobs), "the model's own, before the mask"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"response_format": {"type": "grammar"}}, "response_format", "unsupported"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "invalid_value"),
    ({"guided_json": "{"}, "guided_json", "json"),
    ({"guided_json": {"type": "nonsense"}}, "guided_json", "grammar"),
    ({"guided_json": {"not": {}, "x-guidance": {"lenient": True}}}, "guided_json", "grammar"),
    ({"guided_json": {"$ref": "http://localhost/schema"}}, "guided_json", "grammar"),
    ({"guided_json": {"$ref": "#"}}, "guided_json", "grammar"),
    ({"guided_json": {"enum": ["x" * 70_000]}}, "guided_json", "grammar"),
    ({"guided_json": False}, "guided_json", "grammar"),
    ({"guided_regex": "(?=a)b"}, "guided_regex", "grammar"),
    ({"guided_regex": "(("}, "guided_regex", "grammar"),
    ({"guided_choice": []}, "guided_choice", "invalid_type"),
    ({"guided_choice": ["a"], "guided_regex": "a"}, "guided_choice", "invalid_value"),
    ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs.grammar", "unsupported"),
    ({"guided_regex": "a", "ignore_eos": True}, "ignore_eos", "invalid_value"),
]


def test_what_no_grammar_can_be_made_of_is_named() -> None:
    answers = posted(*({"prompt": "once", "max_tokens": 4, **fields} for fields, _, _ in REFUSED), path=COMPLETIONS)
    for (fields, param, code), answer in zip(REFUSED, answers, strict=True):
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (400, param, code), fields


def test_a_grammar_that_grows_too_large_ends_its_own_answer_alone() -> None:
    wide = {"type": "object", "properties": {f"k{i}": {"type": "null"} for i in range(1100)}}
    asked = {"prompt": "once", "max_tokens": 60, "temperature": 0}
    broken, streamed, well = posted(
        {**asked, "guided_json": wide}, {**asked, "guided_json": wide, "stream": True}, {**asked, "ignore_eos": True},
        path=COMPLETIONS,
    )  # fmt: skip
    assert (broken.status_code, broken.json()["error"]["code"]) == (500, "engine_error")
    assert "grammar cannot be followed" in events(streamed.text)[-1]["error"]["message"]
    assert well.json()["usage"]["completion_tokens"] == 60


def test_a_mask_allows_what_continues_the_text_and_nothing_else() -> None:
    model = opened()
    guide = model.grammars.guide(Form("x", choices=("ab", "b")))
    table = model.tokenizer.table
    while True:
        allowed = [one for one, is_allowed in enumerate(guide.allowed().tolist()) if is_allowed]
        pieces = {table.bytes_of(one) for one in allowed}
        if pieces == {b"b"} or set(allowed) == set(model.engine.eos_ids):
            break
        assert pieces <= {b"a", b"b", b"ab"}
        assert guide.take(next(one for one in allowed if table.bytes_of(one) in (b"a", b"ab"))) is None
    assert "grammar" in str(guide.take(0))
