"""The first questions: is anybody there, which model, which of the APIs, and with log probabilities?"""

from __future__ import annotations

from typing import Any

import msgspec

from degarble.errors import TargetError
from degarble.probe import reading
from degarble.probe.connection import Connection, Reply
from degarble.probe.desk import Offer, answered, body_of
from degarble.probe.engine import Engine, Signs, recognise, with_version
from degarble.probe.exchange import Ask, Exchange, Kind
from degarble.probe.exposition import PLAIN, PROMETHEUS_2, Exposition, sample_names

NUM_TOP = (20, 5, 0)
"""Alternatives to ask for, best first: vLLM and OpenAI allow 20, completions of OpenAI 5."""


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """What is known before the probes."""

    offer: Offer
    engine: Engine
    exposition: Exposition | None
    no_exposition: str
    """Why there is none."""


def make_contact(connection: Connection, model: str | None = None, prompt: str = "Hello") -> Contact:
    """Raises TargetError where nobody answers as an OpenAI-compatible endpoint does."""
    listing = connection.get("/v1/models")
    card = _card(listing)
    if model is None and not card.get("id"):
        raise TargetError(f"{connection.address}: {_why_no_model(listing)}")
    found = Offer(model=model or str(card["id"]), kinds=(), context=_context(card))
    refusals: list[str] = []
    fingerprint = ""
    for kind in Kind:
        tried = _try(connection, found, kind, prompt, refusals)
        if tried is not None:
            num_top, exchange = tried
            assert exchange.answer is not None
            fingerprint = fingerprint or exchange.answer.fingerprint or ""
            found = msgspec.structs.replace(found, kinds=(*found.kinds, kind), num_top={**found.num_top, kind: num_top})
    if not found.kinds:
        raise TargetError(f"{connection.address}: neither chat nor completions answer: {'; '.join(refusals)[:400]}")
    exposition, reason = _exposition(connection)
    signs = Signs(
        owned_by=str(card.get("owned_by", ""))[:80],
        server=listing.headers.get("server", "")[:80],
        fingerprint=fingerprint,
        metrics=exposition.plain if exposition else frozenset(),
        errors=tuple(refusals),
    )
    engine = with_version(recognise(signs), connection)
    return Contact(
        offer=msgspec.structs.replace(found, token_ids=engine.token_ids),
        engine=engine,
        exposition=exposition,
        no_exposition=reason,
    )


def _card(listing: Reply) -> dict[str, Any]:
    """The first model of the list; empty where there is none."""
    if listing.failure is not None:
        return {}
    try:
        cards = reading.parse_json(listing.body)["data"]
        return dict(cards[0])
    except (reading.BadShape, LookupError, TypeError, ValueError):
        return {}


def _context(card: dict[str, Any]) -> int | None:
    found = card.get("max_model_len") or (card.get("meta") or {}).get("n_ctx_train")
    return found if isinstance(found, int) and found > 0 else None


def _why_no_model(listing: Reply) -> str:
    if listing.status in (401, 403):
        return f"status {listing.status}: it wants a key: name the variable that holds it with --api-key-env"
    if listing.failure is not None:
        return f"/v1/models: {listing.failure}"
    return f"/v1/models: expected a list of models, found {listing.text[:80]!r}; name the model with --model"


def _try(
    connection: Connection, offer: Offer, kind: Kind, prompt: str, refusals: list[str]
) -> tuple[int, Exchange] | None:
    """The most log probabilities with which an API answers at all; None: it does not."""
    for num_top in NUM_TOP:
        ask = Ask(kind=kind, prompt=prompt, max_tokens=2)
        wanted = msgspec.structs.replace(offer, num_top={kind: num_top})
        exchange = answered(
            Exchange(probe="contact", label=kind, ask=ask), connection.post(kind.path, body_of(ask, wanted))
        )
        if exchange.answer is not None:
            return (num_top if exchange.answer.scores else 0), exchange
        refusals.append(f"{kind}: {exchange.failure}")
        if not exchange.is_refused:
            return None
    return None


def _exposition(connection: Connection) -> tuple[Exposition | None, str]:
    plain = connection.get("/metrics", PLAIN)
    if plain.failure is not None:
        return None, f"/metrics: {plain.failure}"
    names = sample_names(plain.text)
    if not names:
        return None, "/metrics holds no samples in Prometheus' text format"
    other = connection.get("/metrics", PROMETHEUS_2)
    negotiated = names if other.failure is not None else sample_names(other.text)
    return Exposition(plain=names, negotiated=negotiated), ""
