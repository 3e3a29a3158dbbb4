"""A, B, A again: a prompt before its prefix can be in any cache, after it is, and after another prompt came between.

Prompts begin with a salt that no earlier run used, so that the first answer is computed from nothing. Lengths lie around
multiples of 16 tokens, the block sizes of paged caches: the last block full, one token short, one token over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe
from degarble.probe.prompts import draw_words

MAX_TOKENS = 12
BLOCK = 16
LENGTHS = tuple(BLOCK * blocks + more for blocks in (2, 4, 8) for more in (-1, 0, 1))
"""Tokens of the prompt that are aimed at: around 32, 64 and 128."""
MISS, HIT, AFTER = "miss", "hit", "after-others"
PROBE_WORDS = 8
"""More words, to measure how many tokens one costs."""


class Prefixes(Probe):
    """Every length three times."""

    name = "prefixes"
    order = 60

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """All misses, then all hits, then others' prompts with the same beginnings, then all again."""
        asks = list(self._asks(desk))
        for group in (MISS, HIT):
            yield from self._round(desk, asks, group)
        for ask in asks[::3]:
            more = " ".join(draw_words(desk.rng(ask.prompt), 12))
            other = Ask(kind=ask.kind, prompt=f"{ask.prompt} {more}", max_tokens=1)
            desk.ask(Exchange(probe=self.name, label="others", ask=other))
        yield from self._round(desk, asks, AFTER)

    def _round(self, desk: Desk, asks: Sequence[Ask], group: str) -> Iterator[Exchange]:
        for length, ask in zip(LENGTHS, asks, strict=True):
            yield desk.ask(Exchange(probe=self.name, label=f"{length}-tokens", group=group, size=length, ask=ask))

    def _asks(self, desk: Desk) -> Iterator[Ask]:
        """Prompts of the lengths aimed at. One token a word is assumed where the endpoint does not count."""
        rng = desk.rng(self.name)
        words = draw_words(rng, max(LENGTHS))
        short, long = (self._count(desk, words[:count]) for count in (PROBE_WORDS, 2 * PROBE_WORDS))
        fixed, cost = 0, 1.0
        if short is not None and long is not None and long > short:
            cost = (long - short) / PROBE_WORDS
            fixed = round(short - cost * PROBE_WORDS)
        for at, length in enumerate(LENGTHS):
            count = max(1, round((length - fixed) / cost))
            rest = [*words[at:], *words[:at]][:count]
            yield Ask(kind=desk.plain_kind, prompt=self._text(desk, str(at), rest), max_tokens=MAX_TOKENS)

    def _count(self, desk: Desk, words: Sequence[str]) -> int | None:
        ask = Ask(kind=desk.plain_kind, prompt=self._text(desk, "x", words), max_tokens=1)
        answer = desk.ask(Exchange(probe=self.name, label="count", ask=ask)).answer
        return None if answer is None else answer.prompt_tokens

    def _text(self, desk: Desk, mark: str, words: Sequence[str]) -> str:
        return f"{desk.salt}{mark} {' '.join(words)}"
