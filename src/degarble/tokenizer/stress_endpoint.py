"""The pressure test against a live server: does text come through its stream as the server itself means it?

Each hard text is to be repeated by the model, once in a stream and once at a stroke, greedily. A U+FFFD in the stream
that neither the prompt nor the whole answer has is damage of the server's detokenizer or of something on the way; so is
a stream that cannot be read as UTF-8. What the model answers is its own affair and not judged.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from degarble.errors import TargetError
from degarble.tokenizer.corpora import corpus_names, make_corpus
from degarble.tokenizer.mojibake import num_spurious

TIMEOUT_SECONDS = 120.0
MAX_ANSWER_TOKENS = 256
MAX_STREAM_BYTES = 4 << 20
_ESCAPED = re.compile("[\udc80-\udcff]")
INSTRUCTION = "Repeat the following text exactly and add nothing:\n"


class EndpointRow(msgspec.Struct, frozen=True, kw_only=True):
    """One corpus over one server."""

    corpus: str
    num_texts: int
    num_answered: int
    percent_damaged: float
    """Streams with a U+FFFD that neither prompt nor unstreamed answer has, or with bytes that are no UTF-8."""
    per_100_chars: float
    percent_equal: float
    """Streams whose text is that of the same request without streaming. Below 100 may also be a server that does not
    compute alike twice."""


def stress_endpoint(url: str, model: str | None = None, *, seed: int = 0, count: int = 4) -> list[EndpointRow]:
    """Ask an OpenAI-compatible server. Raises TargetError if it cannot be reached or does not answer in that form."""
    import httpx

    base = url.rstrip("/").removesuffix("/v1")
    with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
        try:
            name = model or str(client.get(f"{base}/v1/models").raise_for_status().json()["data"][0]["id"])
            return [_row(client, base, name, corpus, make_corpus(corpus, seed, count)) for corpus in corpus_names()]
        except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
            raise TargetError(f"{url}: {type(error).__name__}: {error}") from None


def _row(client: Any, base: str, model: str, corpus: str, texts: Sequence[str]) -> EndpointRow:
    damaged = spurious = shown = equal = answered = 0
    for text in texts:
        body = _request(model, text)
        whole = client.post(f"{base}/v1/chat/completions", json=body).raise_for_status().json()
        content = whole["choices"][0]["message"].get("content") or ""
        streamed, is_utf8 = _stream(client, f"{base}/v1/chat/completions", {**body, "stream": True})
        extra = num_spurious(streamed, text + content)
        damaged += extra > 0 or not is_utf8
        spurious += extra
        shown += len(streamed)
        equal += streamed == content
        answered += bool(content)
    total = max(1, len(texts))
    return EndpointRow(
        corpus=corpus,
        num_texts=len(texts),
        num_answered=answered,
        percent_damaged=round(100 * damaged / total, 1),
        per_100_chars=round(100 * spurious / max(1, shown), 1),
        percent_equal=round(100 * equal / total, 1),
    )


def _request(model: str, text: str) -> Mapping[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": INSTRUCTION + text}],
        "temperature": 0,
        "max_tokens": MAX_ANSWER_TOKENS,
    }


def _stream(client: Any, url: str, body: Mapping[str, Any]) -> tuple[str, bool]:
    """Text of one stream, and whether its bytes were UTF-8."""
    with client.stream("POST", url, json=body) as response:
        response.raise_for_status()
        parts: list[str] = []
        is_utf8 = True
        for line in sse_lines(response.iter_bytes()):
            is_utf8 = is_utf8 and not _ESCAPED.search(line)
            data = line.removeprefix("data:").strip()
            if line.startswith("data:") and data != "[DONE]":
                choices = json.loads(data).get("choices") or [{}]
                parts.append((choices[0].get("delta") or {}).get("content") or "")
        return "".join(parts), is_utf8


def sse_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Lines of a server-sent stream, however the network cut its bytes. Invalid bytes become lone surrogates."""
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    rest = ""
    taken = 0
    for chunk in chunks:
        taken += len(chunk)
        if taken > MAX_STREAM_BYTES:
            raise ValueError(f"a stream of more than {MAX_STREAM_BYTES} bytes")
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        yield from (line.rstrip("\r") for line in lines)
    yield from (line for line in (rest + decoder.decode(b"", True)).split("\n") if line)
