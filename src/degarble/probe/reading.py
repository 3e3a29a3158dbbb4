"""From an endpoint's JSON to an Answer. What has another shape raises BadShape with place, expected and found."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from degarble.errors import DegarbleError
from degarble.probe.exchange import Answer, Kind, Score

MAX_TOP = 100
"""Alternatives of one position that are kept."""


class BadShape(DegarbleError):
    """A document that is not what OpenAI's API promises."""

    def __init__(self, place: str, expected: str, found: object) -> None:
        self.place, self.expected = place, expected
        self.found = "nothing" if found is None else f"{type(found).__name__} {str(found)[:60]!r}"
        super().__init__(f"{place}: expected {self.expected}, found {self.found}")


def parse_json(data: bytes | str, place: str = "body") -> Any:
    """Any JSON, with NaN as Python writes it, since broken servers do."""
    try:
        return json.loads(data)
    except RecursionError:
        raise BadShape(place, "JSON", "lists within lists without end") from None
    except ValueError as error:
        shown = data[:60].decode("utf-8", "replace") if isinstance(data, bytes) else data[:60]
        raise BadShape(place, "JSON", f"{shown} ({error})") from None


def read_answer(document: Any, kind: Kind) -> Answer:
    """One unstreamed answer."""
    choice = first_choice(document)
    if choice is None:
        raise BadShape("choices", "one choice", document.get("choices"))
    if kind is Kind.CHAT:
        message = require(choice.get("message"), dict, "choices[0].message", "an object")
        text, reasoning = text_of(message), reasoning_of(message)
    else:
        text, reasoning = require(choice.get("text"), str, "choices[0].text", "a string"), ""
    usage = document.get("usage")
    return Answer(
        text=text,
        reasoning=reasoning,
        finish_reason=finish_of(choice),
        prompt_tokens=count_of(usage, "prompt_tokens"),
        completion_tokens=count_of(usage, "completion_tokens"),
        scores=scores_of(choice, kind),
        token_ids=ids_of(choice.get("token_ids")),
        prompt_token_ids=ids_of(document.get("prompt_token_ids") or choice.get("prompt_token_ids")),
        fingerprint=fingerprint_of(document),
    )


def first_choice(document: Any) -> Mapping[str, Any] | None:
    """`choices[0]`; None where the list is empty, as in the chunk that tells the usage."""
    body = require(document, dict, "body", "an object")
    choices = require(body.get("choices"), list, "choices", "a list")
    return require(choices[0], dict, "choices[0]", "an object") if choices else None


def require(value: Any, form: type, place: str, expected: str) -> Any:
    """The value, if it has the form."""
    if not isinstance(value, form):
        raise BadShape(place, expected, value)
    return value


def text_of(message: Mapping[str, Any]) -> str:
    """`content`, which may be null."""
    content = message.get("content")
    return "" if content is None else str(require(content, str, "content", "a string"))


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Text that reasoning models' parsers keep apart, under both of its names."""
    found = message.get("reasoning_content") or message.get("reasoning") or ""
    return found if isinstance(found, str) else ""


def finish_of(choice: Mapping[str, Any]) -> str | None:
    """Why the answer ended; None: it did not, or nobody says."""
    found = choice.get("finish_reason")
    return found if isinstance(found, str) and found else None


def fingerprint_of(document: Mapping[str, Any]) -> str | None:
    """The build that answered."""
    found = document.get("system_fingerprint")
    return found[:200] if isinstance(found, str) else None


def count_of(usage: Any, key: str) -> int | None:
    """A number of tokens."""
    found = usage.get(key) if isinstance(usage, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else None


def ids_of(found: Any) -> tuple[int, ...]:
    """Token ids, or none where the list holds anything else."""
    if not isinstance(found, list) or not all(isinstance(one, int) and not isinstance(one, bool) for one in found):
        return ()
    return tuple(found)


def scores_of(choice: Mapping[str, Any], kind: Kind) -> tuple[Score, ...]:
    """Log probabilities in either API's form; empty where there are none."""
    found = choice.get("logprobs")
    if not isinstance(found, dict):
        return ()
    if isinstance(found.get("content"), list):
        return tuple(_chat_score(one) for one in found["content"] if isinstance(one, dict))
    return tuple(_text_scores(found)) if kind is Kind.TEXT else ()


def _chat_score(one: Mapping[str, Any]) -> Score:
    top = one.get("top_logprobs")
    return Score(
        token=str(one.get("token", "")),
        logprob=_number(one.get("logprob")),
        data=_bytes(one.get("bytes")),
        top=tuple(
            (str(other.get("token", "")), _number(other.get("logprob")))
            for other in (top if isinstance(top, list) else ())[:MAX_TOP]
            if isinstance(other, dict)
        ),
    )


def _text_scores(found: Mapping[str, Any]) -> list[Score]:
    tokens, numbers, tops = (_list(found.get(key)) for key in ("tokens", "token_logprobs", "top_logprobs"))
    scores = []
    for at, token in enumerate(tokens):
        top = tops[at] if at < len(tops) and isinstance(tops[at], dict) else {}
        pairs = tuple((str(text), _number(number)) for text, number in list(top.items())[:MAX_TOP])
        number = _number(numbers[at]) if at < len(numbers) else None
        scores.append(Score(token=str(token), logprob=number, top=pairs))
    return scores


def _list(found: Any) -> Sequence[Any]:
    return found if isinstance(found, list) else ()


def _number(found: Any) -> float | None:
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    try:
        return float(found)
    except OverflowError:
        return math.inf


def _bytes(found: Any) -> bytes | None:
    try:
        return bytes(found) if isinstance(found, list) else None
    except (TypeError, ValueError):
        return None
