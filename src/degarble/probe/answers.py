"""Ordinary questions in several languages, answered at length: where garbage shows."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe
from degarble.probe.prompts import prompts

MAX_TOKENS = 160
"""Enough for a loop of 64 tokens to show."""


class Answers(Probe):
    """One answer to every question. Also asked of a reference."""

    name = "answers"
    order = 10

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """One after the other."""
        for one in prompts().questions:
            ask = Ask(kind=desk.kind, prompt=one.text, max_tokens=MAX_TOKENS)
            yield desk.ask(Exchange(probe=self.name, label=one.label, ask=ask, expected=one.repeats))
