"""The same questions as streams, each beside its unstreamed twin."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe
from degarble.probe.prompts import prompts

MAX_TOKENS = 48
LABELS = ("english", "chinese", "emoji")
STREAM, WHOLE = "stream", "whole"


class Streams(Probe):
    """Short answers, streamed and at a stroke, from every API that is offered."""

    name = "streams"
    order = 20

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """Both forms of each."""
        for kind in desk.offer.kinds:
            for one in prompts().questions:
                if one.label in LABELS:
                    for group in (WHOLE, STREAM):
                        ask = Ask(kind=kind, prompt=one.text, max_tokens=MAX_TOKENS, is_stream=group == STREAM)
                        yield desk.ask(Exchange(probe=self.name, label=f"{kind}-{one.label}", group=group, ask=ask))
