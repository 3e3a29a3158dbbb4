"""Copies of ever longer lists of words, and where they stop coming out: then the boundary, closer and closer."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange, Kind
from degarble.probe.interface import Probe
from degarble.probe.ladder_quality import BAD, Rung, copied_share, find_collapse
from degarble.probe.prompts import draw_words

SIZES = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
"""Words of the list."""
EXPECTED_WORDS = 12
MAX_TOKENS = 40
BISECTIONS = 4


class LengthLadder(Probe):
    """Ends at the first length that the endpoint refuses, or has no time for."""

    name = "length-ladder"
    order = 80

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """All rungs, then rungs between the last good and the first bad one."""
        rungs: list[Rung] = []
        for size in SIZES:
            exchange = self._rung(desk, size)
            yield exchange
            if exchange.answer is None:
                break
            rungs.append(rung_of(exchange))
        for _ in range(BISECTIONS):
            found = find_collapse(rungs)
            if found is None or found.bad.size - found.good.size < 2:
                return
            exchange = self._rung(desk, (found.good.size + found.bad.size) // 2)
            yield exchange
            if exchange.answer is None or BAD < rung_of(exchange).quality < 1 - BAD:
                return
            rungs.append(rung_of(exchange))

    def _rung(self, desk: Desk, size: int) -> Exchange:
        words = draw_words(desk.rng(self.name), size)
        text, expected = " ".join(words), words[:EXPECTED_WORDS]
        if desk.plain_kind is Kind.TEXT:
            begin = words[:4]
            prompt = f"{text}\n\n{' '.join(begin)}"
            expected = words[4 : 4 + EXPECTED_WORDS]
        else:
            prompt = f"Copy this list of words from its beginning, word for word:\n{text}"
        ask = Ask(kind=desk.plain_kind, prompt=prompt, max_tokens=MAX_TOKENS)
        label = f"{size}-words"
        return desk.ask(Exchange(probe=self.name, label=label, ask=ask, size=size, expected=" ".join(expected)))


def rung_of(exchange: Exchange) -> Rung:
    """What one answer is worth."""
    assert exchange.answer is not None
    quality = copied_share(exchange.expected or "", exchange.answer.text)
    return Rung(size=exchange.size, prompt_tokens=exchange.answer.prompt_tokens, quality=quality)
