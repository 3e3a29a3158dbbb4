"""A stand-in for a healthy endpoint, in this process: deterministic, with log probabilities, streams, stops and metrics.

Its model cuts texts into words, repeats and continues what it is shown, and else draws words from the prompt's checksum. A fault
adds functions to one of the stages that an answer passes: tokens, document, stream; or changes counts and metrics.
"""

from __future__ import annotations

import json
import math
import random
import re
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec

from degarble.probe.exchange import Kind
from degarble.probe.metric_names import metric_names
from degarble.probe.prompts import draw_words, prompts

_PIECES = re.compile(r"\s?[A-Za-zÀ-ÿ]+|\s?\d|\s|[^\sA-Za-zÀ-ÿ\d]")
REPEAT, COPY = "Repeat this text exactly: ", "word for word:\n"
NUM_WORDS = 90
ASIAN = "海山川空風花月雨雪春夏秋冬人木火土金水日天地心手目口耳足"

CERTAIN = (math.log(0.7), math.log(0.2), math.log(0.05))


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One sampled token."""

    text: str
    token_id: int
    logprob: float | None
    top: tuple[tuple[str, float], ...]
    data: bytes


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the model sees it."""

    kind: Kind
    prompt: str
    max_tokens: int
    num_before: int
    """How often the same prompt was asked already."""
    is_in_company: bool
    """Whether another request is being answered."""


def sent(body: bytes | dict[str, Any], form: str = "application/json", status: int = 200) -> httpx.Response:
    """A response that is still to be read, as one from the network is."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return httpx.Response(status, headers={"content-type": form}, stream=httpx.ByteStream(data))


def token_of(text: str, data: bytes | None = None) -> Token:
    """A token that the model is certain of, at 70 %, with two alternatives."""
    top = tuple(zip((text, f"{text}~", f"~{text}"), CERTAIN, strict=True))
    token_id = zlib.crc32(text.encode()) % 50_000 + 100
    return Token(text=text, token_id=token_id, logprob=top[0][1], top=top, data=data or text.encode())


def cut(text: str) -> list[str]:
    """The stand-in's tokenizer."""
    return _PIECES.findall(text)


@dataclass(kw_only=True)
class FakeEndpoint:
    """Healthy until a fault changes one of its parts."""

    engine: str = "vllm"
    tokens: list[Callable[[Question, list[Token]], list[Token]]] = field(default_factory=list)
    document: list[Callable[[Question, dict[str, Any]], dict[str, Any]]] = field(default_factory=list)
    stream: list[Callable[[Question, list[bytes]], list[bytes]]] = field(default_factory=list)
    prompt_tokens: Callable[[Question, int], int] = field(default=lambda question, count: count)
    metrics: Callable[[str], str] = field(default=lambda text: text)
    waits_for_company: bool = False
    """Hold an answer back a moment, so that requests sent together are together."""
    ignores_stops: bool = False

    def __post_init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._open = 0
        self._changed = threading.Condition()

    def transport(self) -> httpx.MockTransport:
        """What answers instead of the network."""
        return httpx.MockTransport(self.handle)

    def handle(self, request: httpx.Request) -> httpx.Response:
        """One request."""
        path = request.url.path
        if path == "/v1/models":
            card = {"id": "stand-in", "owned_by": self.engine, "max_model_len": 8192}
            return sent({"data": [card]})
        if path == "/version":
            return sent({"version": "0.32.0"})
        if path == "/metrics":
            names = [metric.name for metric in metric_names()[self.engine]]
            text = self.metrics("".join(f'{name}{{engine="0"}} 1\n' for name in names))
            return sent(text.encode(), "text/plain")
        kind = next((kind for kind in Kind if path == kind.path), None)
        if kind is None:
            return sent({"error": "no such path"}, status=404)
        return self._answer(kind, json.loads(request.content))

    def _answer(self, kind: Kind, body: dict[str, Any]) -> httpx.Response:
        prompt = body["prompt"] if kind is Kind.TEXT else body["messages"][0]["content"]
        with self._changed:
            before = self._seen.get(prompt, 0)
            self._seen[prompt] = before + 1
            self._open += 1
            self._changed.notify_all()
            if self.waits_for_company and before:
                self._changed.wait_for(lambda: self._open > 1, timeout=0.03)
            in_company = self._open > 1
        try:
            question = Question(
                kind=kind,
                prompt=prompt,
                max_tokens=body["max_tokens"],
                num_before=before,
                is_in_company=in_company,
            )
            return self._respond(question, body)
        finally:
            with self._changed:
                self._open -= 1

    def _respond(self, question: Question, body: dict[str, Any]) -> httpx.Response:
        pieces = reply_of(question)
        is_over = len(pieces) <= question.max_tokens
        tokens = [token_of(piece) for piece in pieces[: question.max_tokens]]
        for change in self.tokens:
            tokens = change(question, tokens)
        tokens, is_stopped = stopped(tokens, [] if self.ignores_stops else body.get("stop") or [])
        reason = "stop" if is_over or is_stopped else "length"
        if body.get("stream"):
            return self._streamed(question, tokens, reason)
        document = self._document(question, tokens, reason, body)
        for alter in self.document:
            document = alter(question, document)
        return sent(document)

    def _document(self, question: Question, tokens: list[Token], reason: str, body: dict[str, Any]) -> dict[str, Any]:
        text = "".join(token.text for token in tokens)
        choice: dict[str, Any] = {"index": 0, "finish_reason": reason, "logprobs": None}
        choice |= {"text": text} if question.kind is Kind.TEXT else {"message": {"role": "assistant", "content": text}}
        if body.get("logprobs"):
            choice["logprobs"] = logprobs_of(question.kind, tokens)
        if body.get("return_token_ids"):
            choice["token_ids"] = [token.token_id for token in tokens]
        return {
            "id": "answer-1", "choices": [choice], "system_fingerprint": "vllm-0.32.0-f9777087",
            "usage": {"prompt_tokens": self.prompt_tokens(question, count_of(question)), "completion_tokens": len(tokens)},
        }  # fmt: skip

    def _streamed(self, question: Question, tokens: list[Token], reason: str) -> httpx.Response:
        chunks = [chunk_of(question.kind, token.text, None) for token in tokens]
        events = [event_of(chunk) for chunk in (*chunks, chunk_of(question.kind, "", reason))]
        events.append(b"data: [DONE]\n\n")
        for alter in self.stream:
            events = alter(question, events)
        return sent(b"".join(events), "text/event-stream; charset=utf-8")


def reply_of(question: Question) -> list[str]:
    """Pieces of the whole answer."""
    prompt = question.prompt
    if prompt.startswith(REPEAT):
        return cut(prompt.removeprefix(REPEAT))
    if COPY in prompt:
        return cut(prompt.partition(COPY)[2])
    words = prompt.split()
    if question.kind is Kind.TEXT and len(words) > 8 and words[-4:] == words[:4]:
        return [f" {word}" for word in words[4:-4]]
    rng_words = _drawn(prompt)
    return [*rng_words, "."]


def _drawn(prompt: str) -> list[str]:
    rng = random.Random(zlib.crc32(prompt.encode()))
    if any(letter > "\u2fff" for letter in prompt):
        return rng.choices(ASIAN, k=NUM_WORDS)
    return [f" {word}" for word in draw_words(rng, NUM_WORDS)]


def count_of(question: Question) -> int:
    """Prompt tokens: BOS, the pieces, and four for a chat's template."""
    return 1 + len(cut(question.prompt)) + (4 if question.kind is Kind.CHAT else 0)


def expected_counts() -> dict[str, int]:
    """What the stand-in's tokenizer says of the counted texts."""
    found = {}
    for kind in Kind:
        for text in prompts().counted:
            question = Question(kind=kind, prompt=text, max_tokens=1, num_before=0, is_in_company=False)
            found[f"{kind} {text}"] = count_of(question)
    return found


def stopped(tokens: list[Token], stops: list[str]) -> tuple[list[Token], bool]:
    """Cut before the first stop string, inside a token where it begins there."""
    text = "".join(token.text for token in tokens)
    places = [at for stop in stops if (at := text.find(stop)) >= 0]
    if not places:
        return tokens, False
    kept: list[Token] = []
    left = min(places)
    for token in tokens:
        if left <= 0:
            break
        kept.append(token_of(token.text[:left]) if left < len(token.text) else token)
        left -= len(token.text)
    return kept, True


def logprobs_of(kind: Kind, tokens: list[Token]) -> dict[str, Any]:
    """In the form of either API."""
    if kind is Kind.TEXT:
        return {
            "tokens": [token.text for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [dict(token.top) for token in tokens],
        }
    return {
        "content": [
            {
                "token": token.text,
                "logprob": token.logprob,
                "bytes": list(token.data),
                "top_logprobs": [{"token": text, "logprob": number} for text, number in token.top],
            }
            for token in tokens
        ]
    }


def chunk_of(kind: Kind, text: str, reason: str | None) -> dict[str, Any]:
    """One chunk of a stream."""
    piece: dict[str, Any] = {"text": text} if kind is Kind.TEXT else {"delta": {"content": text}}
    return {"id": "answer-1", "choices": [{"index": 0, "finish_reason": reason, **piece}]}


def event_of(chunk: dict[str, Any]) -> bytes:
    """One event of a stream."""
    return f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n".encode()
