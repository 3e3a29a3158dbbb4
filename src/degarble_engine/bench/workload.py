"""Requests and their arrivals, the same for the same seed on every machine.

Gaps between arrivals of a Poisson process are exponential: -ln(1 - u) / rate. Each prompt begins with words of its own, so
that no prefix cache helps unless shared words are asked for.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec

from degarble_engine.bench.settings import LoadSettings

TEXT = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work number night point home water room mother area money "
    "story fact month lot right study book eye job word business issue side kind head house service friend father power "
    "hour game line end member law car city community name president team minute idea body information back parent face "
    "level office door health person art war history party result change morning reason research girl guy moment air "
    "teacher force education"
)
"""Common words, most of them one token in most vocabularies."""


class Planned(msgspec.Struct, frozen=True):
    """One request to come."""

    number: int
    arrival: float
    """Seconds after the start."""
    prompt: str
    output_tokens: int


def plan(settings: LoadSettings) -> list[Planned]:
    """All of them, in the order of arrival."""
    rng = random.Random(settings.seed)
    words = TEXT.split()
    shared = [rng.choice(words) for _ in range(settings.shared_words)]
    arrivals = _arrivals(settings, random.Random(f"{settings.seed} arrivals"))
    return [
        Planned(
            number, next(arrivals), _prompt(settings, rng, words, shared), _drawn(settings, settings.output_tokens, rng)
        )
        for number in range(settings.num_requests)
    ]


def _arrivals(settings: LoadSettings, rng: random.Random) -> Iterator[float]:
    at = 0.0
    while True:
        yield at
        at += 0.0 if math.isinf(settings.rate) else rng.expovariate(settings.rate)


def _prompt(settings: LoadSettings, rng: random.Random, words: list[str], shared: list[str]) -> str:
    own = max(0, _drawn(settings, settings.input_words, rng) - len(shared))
    return " ".join([*shared, *(rng.choice(words) for _ in range(own))])


def _drawn(settings: LoadSettings, mean: int, rng: random.Random) -> int:
    return max(1, round(mean * (1 + settings.spread * rng.uniform(-1, 1))))
