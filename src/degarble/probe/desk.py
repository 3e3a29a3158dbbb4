"""What a probe works with: it asks, and gets a record of whatever comes back."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
from msgspec.structs import replace

from degarble.probe import reading
from degarble.probe.connection import Connection, Reply
from degarble.probe.event_stream import EndpointGaveUp, read_stream
from degarble.probe.exchange import Ask, Exchange, Kind

MAX_TOGETHER = 8
"""Requests at the same time."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """What an endpoint offers, as far as first questions showed."""

    model: str
    kinds: tuple[Kind, ...]
    num_top: Mapping[Kind, int] = {}
    """Alternatives of a position that may be asked for; 0: no log probabilities."""
    context: int | None = None
    """Tokens of prompt and answer together (`max_model_len`)."""
    token_ids: bool = False


class Desk:
    """Asks one endpoint on behalf of one probe."""

    def __init__(self, connection: Connection, offer: Offer, *, seed: int = 0, salt: str = "") -> None:
        """`salt`: a text that no earlier run has used, so that no prefix of it is in a cache already."""
        self.connection = connection
        self.offer = offer
        self.seed = seed
        self.salt = salt or f"{random.getrandbits(48):012x}"

    @property
    def kind(self) -> Kind:
        """The API for ordinary questions: chat where it is offered."""
        return Kind.CHAT if Kind.CHAT in self.offer.kinds else Kind.TEXT

    @property
    def plain_kind(self) -> Kind:
        """The API for texts to be continued: completions where they are offered."""
        return Kind.TEXT if Kind.TEXT in self.offer.kinds else Kind.CHAT

    def rng(self, name: str) -> random.Random:
        """Numbers of one probe, the same in every run with the same seed."""
        return random.Random(f"{self.seed} {name}")

    def ask(self, exchange: Exchange) -> Exchange:
        """The same record with the answer, or with why there is none."""
        return answered(exchange, self.connection.post(exchange.ask.kind.path, body_of(exchange.ask, self.offer)))

    def ask_together(self, exchanges: Sequence[Exchange]) -> list[Exchange]:
        """All at the same time, at most eight."""
        with ThreadPoolExecutor(max_workers=MAX_TOGETHER) as pool:
            return list(pool.map(self.ask, exchanges))


def body_of(ask: Ask, offer: Offer) -> dict[str, Any]:
    """The request."""
    body: dict[str, Any] = {"model": offer.model, "temperature": 0, "max_tokens": ask.max_tokens}
    num_top = offer.num_top.get(ask.kind, 0)
    if ask.kind is Kind.CHAT:
        body["messages"] = [{"role": "user", "content": ask.prompt}]
        body |= {"logprobs": True, "top_logprobs": num_top} if num_top else {}
    else:
        body["prompt"] = ask.prompt
        body |= {"logprobs": num_top} if num_top else {}
    if ask.stop:
        body["stop"] = list(ask.stop)
    if ask.is_stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if offer.token_ids:
        body["return_token_ids"] = True
    return body


def answered(exchange: Exchange, reply: Reply) -> Exchange:
    """The record with what a reply holds. Nothing in a reply raises."""
    if reply.failure is not None:
        return replace(exchange, failure=reply.failure, is_refused=reply.is_refused)
    try:
        if exchange.ask.is_stream:
            answer, stream = read_stream(reply.body, exchange.ask.kind, reply.headers.get("content-type", ""))
            return replace(exchange, answer=answer, stream=stream)
        document = reading.parse_json(reply.body)
        if isinstance(document, dict) and document.get("error"):
            return replace(exchange, failure=f"an error with status {reply.status}: {str(document['error'])[:200]}")
        return replace(exchange, answer=reading.read_answer(document, exchange.ask.kind))
    except (reading.BadShape, EndpointGaveUp) as error:
        return replace(exchange, failure=str(error))
    except RecursionError:
        return replace(exchange, failure="an answer nested without end")
