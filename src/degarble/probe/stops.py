"""Stop strings that hardly any text can avoid, so that what a model says does not matter."""

from __future__ import annotations

from collections.abc import Iterator

from degarble.probe.desk import Desk
from degarble.probe.exchange import Ask, Exchange
from degarble.probe.interface import Probe

PROMPT = "Write one sentence about the sea."
STOPS = {"letter": ("e", "E"), "space": (" ",), "several": (" the", " of", " and", " a", "e "), "line": ("\n", ".")}
MAX_TOKENS = 48


class Stops(Probe):
    """Each set of stop strings once."""

    name = "stops"
    order = 40

    def run(self, desk: Desk) -> Iterator[Exchange]:
        """Greedy, so that the answer without stops begins alike."""
        for label, stop in STOPS.items():
            ask = Ask(kind=desk.kind, prompt=PROMPT, max_tokens=MAX_TOKENS, stop=stop)
            yield desk.ask(Exchange(probe=self.name, label=label, ask=ask))
