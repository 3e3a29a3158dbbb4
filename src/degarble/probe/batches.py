"""Greedy answers alone, twice, and then all at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe
from degarble.probe.prompts import prompts

MAX_TOKENS = 24
ALONE, AGAIN, TOGETHER = "alone", "again", "together"


class Batches(Probe):
    """What `again` does to the answers is noise; what `together` does beyond that is the batch."""

    name = "batches"
    order = 50

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """Two quiet rounds, then eight requests side by side: prompts of different lengths, as real batches have."""
        asks = [
            (one.label, Ask(kind=desk.kind, prompt=one.text, max_tokens=MAX_TOKENS)) for one in prompts().questions[:8]
        ]
        for group in (ALONE, AGAIN):
            for label, ask in asks:
                yield desk.ask(Exchange(probe=self.name, label=label, group=group, ask=ask))
        yield from desk.ask_together(
            [Exchange(probe=self.name, label=label, group=TOGETHER, ask=ask) for label, ask in asks]
        )
