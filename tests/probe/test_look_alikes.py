"""What healthy endpoints do that looks like a fault, and must be left alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from degarble.endpoint_faults.fake_endpoint import FakeEndpoint, Question, Token, token_of
from degarble.report.interface import Report
from tests.probe.endpoints import report_on

TABLE = "| animal | legs | colour |\n|---|---|---|\n| cat | 4 | grey |\n| hen | 2 | white |\n| ant | 6 | black |\n"
CODE = "def total(numbers):\n    result = 0\n    for number in numbers:\n        result += number\n    return result\n"
CHINESE = "长江是亚洲第一长河，流经十一个省区，最后注入东海。江上有许多桥梁，两岸有许多城市。"


def answering(text: str) -> Callable[[Question, list[Token]], list[Token]]:
    """Long answers are this text; what needs the model's own answer is left."""
    return lambda question, tokens: [token_of(one) for one in text] if question.max_tokens > 100 else tokens


def found(report: Report) -> list[tuple[str, str]]:
    assert report.failure is None and report.summary["crashed"] == 0
    return [(finding.rule, finding.message) for finding in report.findings]


@pytest.mark.parametrize("text", [TABLE, CODE, CHINESE], ids=["table", "code", "chinese"])
def test_ordinary_texts(text: str) -> None:
    endpoint = FakeEndpoint()
    endpoint.tokens.append(answering(text))
    assert found(report_on(endpoint)) == []


def looping(certain: bool) -> FakeEndpoint:
    """Long answers loop; the model is certain of it, as healthy ones are, or not."""
    endpoint = FakeEndpoint()
    chances = (0.97, 0.02, 0.005) if certain else (0.3, 0.28, 0.26)

    def loop(question: Question, tokens: list[Token]) -> list[Token]:
        if question.max_tokens <= 100:
            return tokens
        words = [" the", " same", " words", " again"]
        tops = [tuple((text, math.log(chance)) for text, chance in zip(("a", "b", "c"), chances, strict=True))] * 4
        made = [
            replace(token_of(text), top=top, logprob=math.log(chances[0]))
            for text, top in zip(words, tops, strict=True)
        ]
        return [made[at % 4] for at in range(question.max_tokens)]

    endpoint.tokens.append(loop)
    return endpoint


def test_a_certain_loop_is_a_models_own() -> None:
    assert found(report_on(looping(certain=True))) == []


def test_a_model_that_loops_as_its_reference_does() -> None:
    assert found(report_on(looping(certain=False), reference=looping(certain=False))) == []


def test_the_same_loop_beside_a_healthy_reference_is_found() -> None:
    assert "RUN802" in {rule for rule, _ in found(report_on(looping(certain=False), reference=FakeEndpoint()))}


def test_a_loop_without_log_probabilities_proves_nothing() -> None:
    endpoint = looping(certain=False)
    endpoint.document.append(without_scores)
    report = report_on(endpoint)
    assert found(report) == []
    (result,) = [result for result in report.results if result.rule == "RUN802"]
    assert result.outcome == "skipped" and "proves nothing" in (result.reason or "")


def without_scores(question: Question, document: dict[str, Any]) -> dict[str, Any]:
    document["choices"][0]["logprobs"] = None
    return document


def test_an_emoji_cut_off_at_max_tokens() -> None:
    endpoint = FakeEndpoint()

    def cut_off(question: Question, tokens: list[Token]) -> list[Token]:
        half = replace(token_of("\ufffd"), data=b"\xf0\x9f")
        return [*tokens[:-1], half] if len(tokens) == question.max_tokens > 2 else tokens

    endpoint.tokens.append(cut_off)
    assert [one for one in found(report_on(endpoint)) if one[0] == "RUN803"] == []


def test_broken_bytes_that_the_model_sampled_itself() -> None:
    endpoint = FakeEndpoint()
    own = replace(token_of("\ufffd"), data=b"\xff")
    endpoint.tokens.append(
        lambda question, tokens: [*tokens[:5], own, *tokens[5:]] if question.max_tokens > 100 else tokens
    )
    assert [one for one in found(report_on(endpoint)) if one[0] == "RUN803"] == []


def test_rounding_in_a_batch() -> None:
    endpoint = FakeEndpoint()
    endpoint.tokens.append(
        lambda question, tokens: [
            replace(token, logprob=None if token.logprob is None else token.logprob - 0.03 * (question.num_before % 2))
            for token in tokens
        ]
    )
    assert found(report_on(endpoint)) == []


def test_a_reasoning_model_whose_answer_is_still_empty() -> None:
    endpoint = FakeEndpoint()

    def thinking(question: Question, document: dict[str, Any]) -> dict[str, Any]:
        choice = document["choices"][0]
        if "message" in choice:
            choice["message"] = {"content": "", "reasoning_content": choice["message"]["content"]}
            choice |= {"logprobs": None, "token_ids": []}
        return document

    endpoint.document.append(thinking)
    assert [one for one in found(report_on(endpoint)) if one[0] == "RUN801"] == []


def test_a_context_that_ends_is_no_collapse() -> None:
    endpoint = FakeEndpoint()
    inner = endpoint.handle
    from degarble.endpoint_faults.fake_endpoint import sent

    endpoint.handle = lambda request: (  # type: ignore[method-assign]
        sent({"error": "maximum context length is 700"}, status=400) if len(request.content) > 5000 else inner(request)
    )
    report = report_on(endpoint)
    assert found(report) == [] and report.status == "ok"
